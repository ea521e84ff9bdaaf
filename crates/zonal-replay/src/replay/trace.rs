//! From the lines of a trace to what each CPU does.
//!
//! ```
//! let text = "\
//! sh-7 [000] ..... 1.000001: mm_page_alloc: page=ffffea0000000040 pfn=0x1 order=0 migratetype=0 gfp_flags=GFP_KERNEL
//! sh-7 [001] ..... 1.000002: mm_page_free: page=ffffea0000000040 pfn=0x1 order=0
//! sh-7 [001] ..... 1.000003: mm_page_free: page=ffffea0000000080 pfn=0x2 order=0
//! ";
//! let trace = zonal_replay::replay::trace::Trace::read(text.as_bytes())?;
//! assert_eq!((trace.script.steps(), trace.counts.foreign_frees), (2, 1));
//! # Ok::<(), zonal_replay::replay::trace::TraceError>(())
//! ```

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use serde::Serialize;
use zonal::{Request, ZoneType};
use zonal_sim::replay::{BlockId, Script};

use super::parse::{Item, Reason, line};

/// Steps a script may have: each may be an allocation.
const MOST: usize = Script::MOST_BLOCKS;
/// Bytes a line may have. Tracers write a few hundred; what is no trace may have no end.
const LONGEST: usize = 1 << 16;
/// Bytes that a step takes at most, which is while the trace is read and if none is a free: its
/// own, its block's, and the block's place among the live ones, each with room to grow.
pub(crate) const STEP_BYTES: u64 = 64;

/// What was found in a trace, and what was left out of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks freed, by the trace.
    pub frees: u64,
    /// Frees of blocks that the trace does not allocate: left out.
    pub foreign_frees: u64,
    /// Blocks allocated a second time without a free between: the free was lost, and is done
    /// just before, on the CPU that allocates.
    pub implied_frees: u64,
    /// Frees with another order than the block was allocated with: the first frees all of it.
    pub other_order: u64,
    /// Allocations that failed when the trace was taken: left out.
    pub failed: u64,
    /// Events of the allocator that come with the others.
    pub accompanying: u64,
    /// Events of something else.
    pub unknown_events: u64,
    /// Flags of requests that have no meaning here.
    pub unknown_flags: u64,
    /// Requests for low memory, where the replay has none: made for any.
    pub raised_limits: u64,
    /// Events that the tracer says it lost; [`u64::MAX`] if they are more.
    pub lost: u64,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file gave out.
    #[error("cannot read the trace: {0}")]
    Read(#[from] io::Error),
    /// A line is none.
    #[error("line {line}: {reason}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: Reason,
    },
    /// There is nothing to be done again.
    #[error("there is no mm_page_alloc event in the trace")]
    Empty,
    /// A line that does not end where lines of traces do.
    #[error("line {line}: longer than {LONGEST} bytes, which no line of a trace is")]
    LongLine {
        /// Its number, from 1.
        line: usize,
    },
    /// More than there are numbers for, or memory.
    #[error(
        "line {line}: more than {most} events, for which there is no room; cut the trace into parts"
    )]
    TooLong {
        /// The line that is too many.
        line: usize,
        /// The events there is room for.
        most: usize,
    },
}

/// A trace.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What each CPU does.
    pub script: Script,
    /// What was found.
    pub counts: Counts,
    /// Blocks that are allocated, by pfn.
    live: HashMap<u64, BlockId>,
}

impl Trace {
    /// Reads a trace to its end. Keeps a line of it at a time, and [the steps](Script).
    ///
    /// # Errors
    ///
    /// [`TraceError`].
    pub fn read(input: impl BufRead) -> Result<Self, TraceError> {
        Self::read_up_to(MOST, input)
    }

    /// Reads a trace of at most `most` events to its end.
    ///
    /// # Errors
    ///
    /// [`TraceError`].
    pub fn read_up_to(most: usize, mut input: impl BufRead) -> Result<Self, TraceError> {
        let most = most.min(MOST);
        let mut trace = Self::default();
        let mut bytes = Vec::new();
        for number in 1.. {
            bytes.clear();
            if input.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            if bytes.len() > LONGEST {
                return Err(TraceError::LongLine { line: number });
            }
            // A program may call itself anything; what matters here is ASCII.
            let text = String::from_utf8_lossy(&bytes);
            let item = line(&text).map_err(|reason| TraceError::Line { line: number, reason })?;
            trace.add(item);
            if trace.script.steps() > most {
                return Err(TraceError::TooLong { line: number, most });
            }
        }
        if trace.script.steps() == 0 { Err(TraceError::Empty) } else { Ok(trace) }
    }

    /// Adds what the next line says.
    pub fn add(&mut self, item: Item) {
        let counts = &mut self.counts;
        match item {
            Item::Alloc { cpu, pfn, request, unknown_flags } => {
                counts.allocs += 1;
                counts.unknown_flags += u64::from(unknown_flags);
                if let Some(block) = self.live.remove(&pfn) {
                    counts.implied_frees += 1;
                    self.script.free(cpu, block);
                }
                // Replays run in one zone for each node, and zero nothing: that would be measured.
                let low = request.limit() < ZoneType::Normal;
                counts.raised_limits += u64::from(low);
                let request = plain(request, low);
                let block = self.script.alloc(cpu, request);
                self.live.insert(pfn, block);
            }
            Item::Free { cpu, pfn, order } => match self.live.remove(&pfn) {
                Some(block) => {
                    counts.frees += 1;
                    counts.other_order += u64::from(self.script.order_of(block) != order);
                    self.script.free(cpu, block);
                }
                None => counts.foreign_frees += 1,
            },
            Item::Failed => counts.failed += 1,
            Item::Accompanying => counts.accompanying += 1,
            Item::Unknown => counts.unknown_events += 1,
            // Unknown how many: one at least.
            Item::Lost(events) => counts.lost = counts.lost.saturating_add(events.max(1)),
            Item::Nothing => {}
        }
    }
}

/// The request as it is replayed.
fn plain(request: Request, low: bool) -> Request {
    let limit = if low { ZoneType::Normal } else { request.limit() };
    let mut plain = Request::new(request.order()).migrate(request.migrate_type()).zone_limit(limit);
    let access = request.access();
    plain = if access.high { plain.high() } else { plain };
    plain = if request.may_not_wait() { plain.no_wait() } else { plain };
    plain = if access.atomic { plain.atomic() } else { plain };
    plain = if request.is_write() { plain.write() } else { plain };
    if request.is_this_node() { plain.this_node() } else { plain }
}

//! A thread that has pages go before requests need their frames.
//!
//! A request that leaves a zone below its low watermark wakes it, by the arena's [`Shrinker`]; it then has clean pages of
//! that zone go until the zone is at its high mark. A request that it is ahead of finds a frame without asking for one: reclaim in
//! its middle (direct reclaim) is for those that are faster. It waits for locks, as it is inside nothing. Dirty pages are
//! written by the cache's own writer, which it wakes, or for it by the host where there is none. If no page of a zone can go it tries
//! again later and later, up to 640 ms.
//!
//! An arena without [watermarks](zonal_host::arena::Builder::watermarks), as by default, wakes no thread.
//!
//! Source of the idea: Linux's `kswapd`.
//!
//! ```
//! use std::sync::Arc;
//! use zonal::watermark::{MinFree, WatermarkConfig};
//! use zonal::{Request, ZoneId};
//! use zonal_cache::cache::Options;
//! use zonal_cache::threads::{OnThreads, Threads};
//! use zonal_cache::{ArenaFrames, MemoryStore, PageCache, Reclaimer, Shrinker, TwoLists};
//! use zonal_host::Arena;
//! let shrinker = Arc::new(Shrinker::new());
//! let marks = WatermarkConfig { min_free: MinFree::Frames(64), ..WatermarkConfig::default() };
//! let arena = Arena::builder().bytes(16 << 20).watermarks(marks).pager(shrinker.clone()).open()?;
//! let arena = Arc::new(arena);
//! let frames = ArenaFrames::new(arena.clone());
//! let options = Options { pages: 4096, ..Options::default() };
//! let cache = PageCache::<OnThreads<TwoLists>>::with_parts(Threads::new(), frames, options)?;
//! shrinker.attach(&cache);
//! let reclaimer = Reclaimer::start(arena.clone(), shrinker)?;
//! let file = cache.open(MemoryStore::from(vec![1; 16 << 20]))?;
//! // A reader may be ahead of the thread for a while; it is not for ever.
//! while cache.reclaim_by_zone()[0].background.reclaimed == 0 {
//!     file.read_at(&mut vec![0; 16 << 20], 0)?;
//! }
//! let (free, marks) = arena.zone_level(ZoneId(0)).ok_or("no zone")?;
//! println!("{free} frames are free; it starts at {} and ends at {}", marks.low, marks.high);
//! reclaimer.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::shrinker::Shrinker;
use crate::writer::Bell;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use zonal::ZoneId;
use zonal::policy::Policy;
use zonal_host::Arena;

/// How often it looks without being woken.
const TICK: Duration = Duration::from_secs(1);
/// How long it lets be a zone of which no page could go; twice as long each time.
const PAUSE: Duration = Duration::from_millis(10);
const MOST_SHIFT: u32 = 6;
/// Pages that go before it looks at the marks again.
const SOME: u64 = 128;

/// The thread: see the [module](self). Dropped, it is told to end, and is not waited for.
pub struct Reclaimer {
    bell: Arc<Bell>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Reclaimer {
    /// Starts it for an arena whose pager is `shrinker`. It keeps both for as long as it runs.
    ///
    /// # Errors
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if the shrinker has one; what the system said to a new
    /// thread.
    pub fn start<S: Policy + 'static>(
        arena: Arc<Arena<S>>,
        shrinker: Arc<Shrinker>,
    ) -> io::Result<Self>
    where
        Arena<S>: Send + Sync,
    {
        let bell = shrinker.bell.clone();
        if !bell.attend() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let rounds = Arc::<AtomicU64>::default();
        let work =
            Work { arena, shrinker, attended: Attended(bell.clone()), rounds: rounds.clone() };
        // A thread that cannot be had drops its work, and with it the place.
        let thread = thread::Builder::new().name("cache-reclaim".to_owned());
        Ok(Self { bell, rounds, thread: thread.spawn(move || work.run())? })
    }

    /// Rounds in which a zone was brought to its high mark, or as near as it came.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Relaxed)
    }

    /// Tells it to end, and waits until it has: for the pages that it is at, and a store that it writes to.
    pub fn stop(self) {
        self.bell.end();
        while !self.thread.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        // After its thread another one may have the bell.
        if !self.thread.is_finished() {
            self.bell.end();
        }
    }
}

impl fmt::Debug for Reclaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaimer").field("rounds", &self.rounds()).finish_non_exhaustive()
    }
}

/// Being the one who hears the bell.
struct Attended(Arc<Bell>);

impl Drop for Attended {
    fn drop(&mut self) {
        self.0.leave();
    }
}

struct Work<S: Policy> {
    arena: Arc<Arena<S>>,
    shrinker: Arc<Shrinker>,
    attended: Attended,
    rounds: Arc<AtomicU64>,
}

impl<S: Policy> Work<S> {
    fn run(self) {
        let bell = &*self.attended.0;
        let mut vain = 0;
        while !bell.is_over(TICK) {
            let zones = (0..self.arena.zone_count() as u8).map(ZoneId);
            // What a policy or a store panics about ends the round, not the thread.
            let round = |zone| catch_unwind(AssertUnwindSafe(|| self.balance(zone)));
            let short = zones.filter(|&zone| !round(zone).unwrap_or(false));
            vain = if short.count() > 0 { (vain + 1).min(MOST_SHIFT) } else { 0 };
            if vain > 0 && bell.is_over_after(PAUSE * (1 << (vain - 1))) {
                return;
            }
        }
    }

    /// Has pages of a zone that is below its low mark go until it is at the high one; whether it is.
    fn balance(&self, zone: ZoneId) -> bool {
        let level = || self.arena.zone_level(zone);
        if !level().is_some_and(|(free, marks)| free <= marks.low && marks.high > 0) {
            return true;
        }
        let _ = self.rounds.fetch_add(1, Relaxed);
        let (mut went, mut drained) = (0, false);
        while let Some((free, marks)) = level()
            && free < marks.high
        {
            if self.attended.0.is_told_to_end() {
                return true;
            }
            // What went may be in the cache of this CPU, and counts there for no watermark.
            if went >= marks.high && !drained {
                drained = true;
                self.arena.drain();
                continue;
            }
            let some = (marks.high - free).min(SOME) as usize;
            match self.shrinker.reclaim_zone(usize::from(zone.0), some) as u64 {
                0 if drained || went == 0 => return false,
                0 => went = marks.high,
                more => went += more,
            }
        }
        true
    }
}

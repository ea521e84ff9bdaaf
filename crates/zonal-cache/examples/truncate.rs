//! Truncating: pages that go back to the allocator in one list, in the batches of the lists that a kernel has, and one
//! by one; and in one list to allocators as Linux 4.13 had it, which frees each of a list by itself, and 4.16, which
//! prepares all and then commits them.
//!
//! ```text
//! cargo run --release -p zonal-cache --example truncate
//! ```

use std::error::Error;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;
use zonal::Pfn;
use zonal::policy::trace::Off;
use zonal::policy::{Policy, Sound};
use zonal::preset::{Linux413, Linux416, Zonal};
use zonal_cache::cache::Options;
use zonal_cache::frames::Frames;
use zonal_cache::lru::{LruLock, PerNode, Whole};
use zonal_cache::{ArenaFrames, MemoryStore, PageCache, Setup, Threads, TwoLists};
use zonal_host::Arena;

const PAGE: usize = 4096;
/// Pages of a file: 64 MiB.
const PAGES: usize = 16_384;
const ROUNDS: usize = 15;

/// Frames of an arena that go back as they come, or each by itself.
struct Freed<const SINGLY: bool, S: Policy>(ArenaFrames<S>);

// SAFETY: as of the frames inside, to which all goes.
unsafe impl<const SINGLY: bool, S: Sound<Trace = Off> + 'static> Frames for Freed<SINGLY, S> {
    type Trace = Off;
    fn alloc(&self) -> Option<Pfn> {
        self.0.alloc()
    }
    unsafe fn free(&self, frames: &[Pfn]) {
        for some in frames.chunks(if SINGLY { 1 } else { PAGES }) {
            // SAFETY: the caller's contract is that of the frames inside.
            unsafe { self.0.free(some) };
        }
    }
    fn address(&self, frame: Pfn) -> NonNull<u8> {
        self.0.address(frame)
    }
}

struct Of<const SINGLY: bool, L, S>(PhantomData<fn() -> (L, S)>);

impl<const SINGLY: bool, L: LruLock, S: Sound<Trace = Off> + 'static> Setup for Of<SINGLY, L, S> {
    type Host = Threads;
    type Frames = Freed<SINGLY, S>;
    type Evict = TwoLists;
    type Lru = L;
}

/// Pages a second that leave with a file that is truncated, and how often a list's lock was held for 1000.
fn speed<const SINGLY: bool, L: LruLock, S: Sound<Trace = Off> + 'static>()
-> Result<(f64, f64), Box<dyn Error>> {
    let arena = Arc::new(Arena::builder().preset::<S>().bytes(80 << 20).open()?);
    let options = Options { pages: PAGES + 1024, ..Options::default() };
    let frames = Freed(ArenaFrames::new(arena));
    let cache = PageCache::<Of<SINGLY, L, S>>::with_parts(Threads::new(), frames, options)?;
    let file = cache.open(MemoryStore::from(vec![1; PAGES * PAGE]))?;
    file.read_at(&mut vec![0; PAGES * PAGE], 0)?;
    let holds = || cache.lists().iter().map(|list| list.holds).sum::<u64>();
    let (before, start) = (holds(), Instant::now());
    file.truncate(0)?;
    let took = start.elapsed().as_secs_f64();
    assert_eq!((cache.stats().used, file.len()), (0, 0));
    Ok((PAGES as f64 / took, (holds() - before) as f64 * 1000.0 / PAGES as f64))
}

const NAMES: [&str; 5] = ["one list", "lists of 14", "one by one", "to Linux413", "to Linux416"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut speeds = [const { Vec::new() }; NAMES.len()];
    let mut held = [0.0; NAMES.len()];
    for _ in 0..ROUNDS {
        let round = [
            speed::<false, Whole, Zonal>()?,
            speed::<false, PerNode<14>, Zonal>()?,
            speed::<true, Whole, Zonal>()?,
            speed::<false, Whole, Linux413>()?,
            speed::<false, Whole, Linux416>()?,
        ];
        for (at, (speed, holds)) in round.into_iter().enumerate() {
            speeds[at].push(speed);
            held[at] = holds;
        }
    }
    println!("{PAGES} clean pages of a file; medians of {ROUNDS}\n");
    println!("                 million pages/s   of one by one   holds of a list for 1000 pages");
    let slowest = speeds[2].clone();
    for (at, name) in NAMES.into_iter().enumerate() {
        let mut ratios: Vec<f64> = speeds[at].iter().zip(&slowest).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        speeds[at].sort_by(f64::total_cmp);
        let (speed, ratio) = (speeds[at][ROUNDS / 2] / 1e6, ratios[ROUNDS / 2]);
        println!("{name:<16}{speed:>16.2}{ratio:>16.2}{:>33.1}", held[at]);
    }
    Ok(())
}

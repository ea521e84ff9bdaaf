//! A cache of numbers: what of a trace would have been hit.
//!
//! ```
//! use zonal_cachetrace::simulate::{Policy, Trace, hits};
//! let pages = Trace { accesses: &[0, 1, 0, 2, 0, 1], unique: 3, sizes: &[] };
//! assert_eq!(hits(Policy::Opt, pages, 2), 2);
//! assert_eq!(hits(Policy::Sieve, pages, 3), 3, "all but the first of each");
//! // Objects of different sizes: the second is too large for the cache.
//! let objects = Trace { accesses: &[0, 1, 0, 1], unique: 2, sizes: &[10, 90] };
//! assert_eq!(hits(Policy::Lru, objects, 50), 1);
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use clap::ValueEnum;
use zonal_cache::evict::{Evict, MultiGen, S3Fifo, Sieve, TwoLists, Verdict, touch};
use zonal_cache::table::{Key, SlotId};

/// Whose hits are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Policy {
    /// Two lists with second chance and refault distance
    TwoLists,
    /// S3-FIFO
    S3Fifo,
    /// SIEVE
    Sieve,
    /// Generations, tiers, and how often pages come back
    Mglru,
    /// To compare with: the page goes that was used longest ago, which costs a lock for each hit
    Lru,
    /// To compare with: the page goes that is needed last. No policy exceeds that
    Opt,
}

impl Policy {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 6] =
        [Self::TwoLists, Self::S3Fifo, Self::Sieve, Self::Mglru, Self::Lru, Self::Opt];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::TwoLists => TwoLists::NAME,
            Self::S3Fifo => S3Fifo::NAME,
            Self::Sieve => Sieve::NAME,
            Self::Mglru => MultiGen::NAME,
            Self::Lru => "LRU",
            Self::Opt => "optimum",
        })
    }
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace<'a> {
    /// Pages, or objects, in the order in which they are asked for: numbers below `unique`.
    pub accesses: &'a [u32],
    /// How many different ones there are.
    pub unique: usize,
    /// How large each is, by number. Empty for pages, each of which is 1.
    pub sizes: &'a [u64],
}

impl Trace<'_> {
    fn size(&self, page: u32) -> u64 {
        self.sizes.get(page as usize).copied().unwrap_or(1)
    }
}

/// No slot.
const NONE: u32 = u32::MAX;

/// How many accesses a cache hits that has room for `room`: pages, or what `sizes` count. With room for all it
/// misses each once; what is larger than the room is never there. O(accesses), with a logarithm for those to
/// compare with.
///
/// # Panics
/// If `room` is 0, or an access is no number below `unique`.
#[must_use]
pub fn hits(policy: Policy, trace: Trace<'_>, room: u64) -> u64 {
    assert!(room > 0, "a cache has room for a page");
    match policy {
        Policy::TwoLists => run::<TwoLists>(trace, room),
        Policy::S3Fifo => run::<S3Fifo>(trace, room),
        Policy::Sieve => run::<Sieve>(trace, room),
        Policy::Mglru => run::<MultiGen>(trace, room),
        // The last one is that of longest ago.
        Policy::Lru => last_goes(trace, room, |at| usize::MAX - at),
        Policy::Opt => {
            let next = next_uses(trace);
            last_goes(trace, room, |at| next[at])
        }
    }
}

fn run<E: Evict>(trace: Trace<'_>, room: u64) -> u64 {
    let unique = trace.unique.max(1);
    let slots = if trace.sizes.is_empty() { room.min(unique as u64) as usize } else { unique };
    let mut evict = E::new(slots);
    let marks: Vec<AtomicU8> = (0..slots).map(|_| AtomicU8::new(0)).collect();
    let (mut slot_of, mut page_in) = (vec![NONE; unique], vec![NONE; slots]);
    let mut free: Vec<u32> = (0..slots as u32).rev().collect();
    let (mut hits, mut used) = (0, 0);
    for &page in trace.accesses {
        let slot = slot_of[page as usize];
        if slot != NONE {
            touch::<E, _>(&marks[slot as usize]);
            hits += 1;
            continue;
        }
        let size = trace.size(page);
        if size > room {
            continue;
        }
        while size > room - used {
            let mut take = |id: SlotId| {
                free.push(id.0);
                Verdict::Taken
            };
            let went = evict.scan(&|id: SlotId| &marks[id.0 as usize], &mut take);
            assert!(went, "the cache takes what it is offered");
            let gone = page_in[free[free.len() - 1] as usize];
            slot_of[gone as usize] = NONE;
            used -= trace.size(gone);
        }
        let slot = free.pop().expect("as many slots as pages that have room");
        used += size;
        page_in[slot as usize] = page;
        marks[slot as usize].store(0, Relaxed);
        slot_of[page as usize] = slot;
        let key = Key { file: 0, index: page.into() };
        evict.insert(SlotId(slot), key.hash());
    }
    hits
}

/// When what is asked for at a time is asked for next.
fn next_uses(trace: Trace<'_>) -> Vec<usize> {
    let never = trace.accesses.len();
    let mut next = vec![never; trace.accesses.len()];
    let mut seen = vec![never; trace.unique];
    for (at, &page) in trace.accesses.iter().enumerate().rev() {
        next[at] = seen[page as usize];
        seen[page as usize] = at;
    }
    next
}

/// A cache that keeps what is there in an order, which the time of its last use gives; the last one goes.
/// Source of the optimum: Belady, "A study of replacement algorithms for a virtual-storage computer" (1966).
fn last_goes(trace: Trace<'_>, room: u64, place: impl Fn(usize) -> usize) -> u64 {
    let mut there: BTreeSet<(usize, u32)> = BTreeSet::new();
    let mut place_of = vec![None; trace.unique];
    let (mut hits, mut used) = (0, 0);
    for (at, &page) in trace.accesses.iter().enumerate() {
        let size = trace.size(page);
        if let Some(before) = place_of[page as usize] {
            there.remove(&(before, page));
            hits += 1;
        } else if size > room {
            continue;
        } else {
            while size > room - used
                && let Some((_, gone)) = there.pop_last()
            {
                place_of[gone as usize] = None;
                used -= trace.size(gone);
            }
            used += size;
        }
        there.insert((place(at), page));
        place_of[page as usize] = Some(place(at));
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zipf with exponent 1 over `pages`, from a seed.
    fn zipf(pages: usize, count: usize) -> Vec<u32> {
        let mut sums: Vec<f64> = Vec::new();
        for rank in 1..=pages {
            sums.push(sums.last().copied().unwrap_or(0.0) + 1.0 / rank as f64);
        }
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as f64 / u64::MAX as f64
        };
        let most = sums[pages - 1];
        let page = |at: f64| sums.partition_point(|&sum| sum < at) as u32;
        (0..count).map(|_| page(random() * most).min(pages as u32 - 1)).collect()
    }

    const ALL: [Policy; 5] =
        [Policy::TwoLists, Policy::S3Fifo, Policy::Sieve, Policy::Mglru, Policy::Lru];

    fn hits(policy: Policy, accesses: &[u32], unique: usize, slots: usize) -> u64 {
        super::hits(policy, Trace { accesses, unique, sizes: &[] }, slots as u64)
    }

    #[test]
    fn a_cache_with_room_for_all_misses_each_page_once() {
        let accesses = zipf(500, 5000);
        let mut pages = accesses.clone();
        pages.sort_unstable();
        pages.dedup();
        for policy in ALL.into_iter().chain([Policy::Opt]) {
            let hits = hits(policy, &accesses, 500, 500);
            assert_eq!(hits as usize, accesses.len() - pages.len(), "{policy}");
        }
    }

    #[test]
    fn more_room_is_no_worse_and_none_exceeds_the_optimum() {
        let accesses = zipf(2000, 40_000);
        for policy in ALL {
            let mut before = 0;
            for slots in [20, 100, 400] {
                let got = hits(policy, &accesses, 2000, slots);
                assert!(got > before, "{policy} with {slots}");
                assert!(got <= hits(Policy::Opt, &accesses, 2000, slots), "{policy}");
                before = got;
            }
        }
    }

    /// What a page that is used once costs: S3-FIFO and SIEVE keep more of a Zipf mix than a plain
    /// queue would, and the optimum on a loop is what it is known to be.
    #[test]
    fn a_loop_that_is_longer_than_the_cache() {
        let accesses: Vec<u32> = (0..10_000).map(|at| at % 100).collect();
        // All but one page of a cache of 50 stay: 49 of the 99 others are hit each round.
        let best = hits(Policy::Opt, &accesses, 100, 50);
        assert!((4850..=4951).contains(&best), "{best}");
        for policy in ALL {
            assert!(hits(policy, &accesses, 100, 50) <= best);
        }
        assert_eq!(hits(Policy::Lru, &accesses, 100, 50), 0);
    }

    /// Source: Che, Tung, Wang, "Hierarchical Web caching systems" (2002), for independent accesses: a page is there if it was
    /// used within a time that is the same for all, in which as many different pages are used as the cache has room for.
    #[test]
    fn lru_on_zipf_hits_what_theory_says() {
        let (unique, slots, count) = (2000, 200, 200_000);
        let all: f64 = (1..=unique).map(|rank| 1.0 / f64::from(rank)).sum();
        let share = |rank: u32| 1.0 / f64::from(rank) / all;
        let there = |time: f64, rank: u32| 1.0 - (-share(rank) * time).exp();
        let fills = |time: f64| (1..=unique).map(|rank| there(time, rank)).sum::<f64>();
        let (mut low, mut high) = (0.0, 1e9);
        for _ in 0..100 {
            let time = f64::midpoint(low, high);
            if fills(time) < f64::from(slots) { low = time } else { high = time }
        }
        let want: f64 = (1..=unique).map(|rank| share(rank) * there(low, rank)).sum();
        let accesses = zipf(unique as usize, count);
        let got = hits(Policy::Lru, &accesses, unique as usize, slots as usize);
        let got = got as f64 / count as f64;
        assert!((got - want).abs() < 0.005, "{got}, and {want} is expected");
    }

    /// SIEVE as its paper has it, on a plain vector: newest first.
    fn plain_sieve(accesses: &[u32], slots: usize) -> u64 {
        let mut queue: Vec<(u32, bool)> = Vec::new();
        let (mut hand, mut hits) = (None::<usize>, 0);
        for &page in accesses {
            if let Some(entry) = queue.iter_mut().find(|(it, _)| *it == page) {
                entry.1 = true;
                hits += 1;
                continue;
            }
            if queue.len() == slots {
                let mut at = hand.unwrap_or(queue.len() - 1);
                while queue[at].1 {
                    queue[at].1 = false;
                    at = at.checked_sub(1).unwrap_or(queue.len() - 1);
                }
                queue.remove(at);
                // The next newer one has moved nowhere: those before `at` stay.
                hand = at.checked_sub(1);
            }
            queue.insert(0, (page, false));
            hand = hand.map(|at| at + 1);
        }
        hits
    }

    #[test]
    fn sieve_hits_what_a_plain_one_does() {
        let accesses = zipf(600, 8000);
        for slots in [7, 50, 200] {
            let want = plain_sieve(&accesses, slots);
            assert_eq!(hits(Policy::Sieve, &accesses, 600, slots), want, "{slots}");
        }
    }

    /// S3-FIFO as its paper has it, on plain queues, with exact ghosts.
    fn plain_s3_fifo(accesses: &[u32], slots: usize) -> u64 {
        use std::collections::{HashMap, VecDeque};
        let (mut small, mut main) = (VecDeque::new(), VecDeque::new());
        let mut ghosts: VecDeque<u32> = VecDeque::new();
        let mut uses: HashMap<u32, u8> = HashMap::new();
        let (mut hits, mut full) = (0, false);
        for &page in accesses {
            if let Some(count) = uses.get_mut(&page) {
                *count = (*count + 1).min(3);
                hits += 1;
                continue;
            }
            while uses.len() == slots {
                if small.len() * 10 >= slots || main.is_empty() {
                    let Some(old) = small.pop_front() else { break };
                    if uses[&old] > 1 {
                        uses.insert(old, 0);
                        main.push_back(old);
                    } else {
                        uses.remove(&old);
                        ghosts.push_back(old);
                    }
                } else if let Some(old) = main.pop_front() {
                    match uses[&old] {
                        0 => {
                            uses.remove(&old);
                        }
                        count => {
                            uses.insert(old, count - 1);
                            main.push_back(old);
                        }
                    }
                }
                while ghosts.len() > slots * 9 / 10 {
                    ghosts.pop_front();
                }
            }
            let fills = !full && small.len() >= slots.div_ceil(10);
            full |= uses.len() + 1 == slots;
            uses.insert(page, 0);
            match ghosts.iter().position(|&ghost| ghost == page) {
                Some(at) => {
                    ghosts.remove(at);
                    main.push_back(page);
                }
                None if fills => main.push_back(page),
                None => small.push_back(page),
            }
        }
        hits
    }

    #[test]
    fn s3_fifo_hits_about_what_a_plain_one_does() {
        let accesses = zipf(3000, 30_000);
        for slots in [50, 200, 800] {
            let want = plain_s3_fifo(&accesses, slots) as f64;
            let got = hits(Policy::S3Fifo, &accesses, 3000, slots) as f64;
            // Ghosts are forgotten when their bucket is full.
            assert!((got / want - 1.0).abs() < 0.004, "{slots}: {got} of {want}");
        }
    }
}

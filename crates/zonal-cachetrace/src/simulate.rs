//! A cache of numbers: what of a trace would have been hit.
//!
//! ```
//! use zonal_cachetrace::simulate::{Policy, hits};
//! let accesses = [0, 1, 0, 2, 0, 1];
//! assert_eq!(hits(Policy::Opt, &accesses, 3, 2), 2);
//! assert_eq!(hits(Policy::Sieve, &accesses, 3, 3), 3, "all but the first of each");
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use clap::ValueEnum;
use zonal_cache::evict::{Evict, S3Fifo, Sieve, TwoLists, Verdict, touch};
use zonal_cache::table::{Key, SlotId};

/// Whose hits are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Policy {
    /// Two lists with second chance and refault distance
    Lru,
    /// S3-FIFO
    S3Fifo,
    /// SIEVE
    Sieve,
    /// What no policy can exceed: the page goes that is needed last
    Opt,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lru => TwoLists::NAME,
            Self::S3Fifo => S3Fifo::NAME,
            Self::Sieve => Sieve::NAME,
            Self::Opt => "optimum",
        })
    }
}

/// No slot.
const NONE: u32 = u32::MAX;

/// How many of `accesses`, to pages with numbers below `unique`, a cache of `slots` hits. A cache with
/// room for all misses each once. O(accesses), with a logarithm for the optimum.
///
/// # Panics
/// If `slots` is 0, or an access is no number below `unique`.
#[must_use]
pub fn hits(policy: Policy, accesses: &[u32], unique: usize, slots: usize) -> u64 {
    assert!(slots > 0, "a cache has room for a page");
    let slots = slots.min(unique.max(1));
    match policy {
        Policy::Lru => run::<TwoLists>(accesses, unique, slots),
        Policy::S3Fifo => run::<S3Fifo>(accesses, unique, slots),
        Policy::Sieve => run::<Sieve>(accesses, unique, slots),
        Policy::Opt => optimum(accesses, unique, slots),
    }
}

fn run<E: Evict>(accesses: &[u32], unique: usize, slots: usize) -> u64 {
    let mut evict = E::new(slots);
    let marks: Vec<AtomicU8> = (0..slots).map(|_| AtomicU8::new(0)).collect();
    let (mut slot_of, mut page_in) = (vec![NONE; unique], Vec::with_capacity(slots));
    let mut hits = 0;
    for &page in accesses {
        let slot = slot_of[page as usize];
        if slot != NONE {
            touch::<E, _>(&marks[slot as usize]);
            hits += 1;
            continue;
        }
        let slot = if page_in.len() < slots {
            page_in.push(page);
            page_in.len() as u32 - 1
        } else {
            let mut gone = SlotId(0);
            let mut take = |id| {
                gone = id;
                Verdict::Taken
            };
            let went = evict.scan(&|id: SlotId| &marks[id.0 as usize], &mut take);
            assert!(went, "the cache takes what it is offered");
            slot_of[page_in[gone.0 as usize] as usize] = NONE;
            page_in[gone.0 as usize] = page;
            gone.0
        };
        marks[slot as usize].store(0, Relaxed);
        slot_of[page as usize] = slot;
        let key = Key { file: 0, index: page.into() };
        evict.insert(SlotId(slot), key.hash());
    }
    hits
}

/// Source: Belady, "A study of replacement algorithms for a virtual-storage computer" (1966).
fn optimum(accesses: &[u32], unique: usize, slots: usize) -> u64 {
    let never = accesses.len();
    let mut next = vec![never; accesses.len()];
    let mut seen = vec![never; unique];
    for (at, &page) in accesses.iter().enumerate().rev() {
        next[at] = seen[page as usize];
        seen[page as usize] = at;
    }
    // What is there, by its next use; and that use by page, if it is there.
    let mut there: BTreeSet<(usize, u32)> = BTreeSet::new();
    let mut use_of = vec![None; unique];
    let mut hits = 0;
    for (at, &page) in accesses.iter().enumerate() {
        if let Some(before) = use_of[page as usize] {
            there.remove(&(before, page));
            hits += 1;
        } else if there.len() == slots
            && let Some((_, gone)) = there.pop_last()
        {
            use_of[gone as usize] = None;
        }
        there.insert((next[at], page));
        use_of[page as usize] = Some(next[at]);
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

    const ALL: [Policy; 3] = [Policy::Lru, Policy::S3Fifo, Policy::Sieve];

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
        let mut hits = 0;
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
            uses.insert(page, 0);
            match ghosts.iter().position(|&ghost| ghost == page) {
                Some(at) => {
                    ghosts.remove(at);
                    main.push_back(page);
                }
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
            assert!((got / want - 1.0).abs() < 0.01, "{slots}: {got} of {want}");
        }
    }
}

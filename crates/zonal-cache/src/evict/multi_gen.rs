//! Multi-generational LRU. Source: Linux 6.1 and later, by its design document (multi-gen LRU: generations, tiers,
//! ageing, eviction, feedback) and the descriptions of its patches; whose way this is, not its code.
//!
//! Mechanism: pages are in generations, 2 to 4 of them. They come to the oldest one, or to the second oldest while
//! there are four, and go from the oldest. What cannot go is put into the second youngest. Ageing opens a young
//! generation when two are left, or when less than a quarter of the pages is in the oldest of three; an empty oldest one
//! is closed. By its uses since it came to its generation a page is of a tier: 0, 1, 2 to 3, 4 and more. A tier whose
//! pages come back after they went more than twice as often as those of tier 0 is protected, with all above: at the end
//! of the oldest generation its pages go on to the next one, and count anew. A page of it that comes back comes to the
//! next one at once.
//!
//! State: generations, tallies and ghosts under the cache's lock; the uses, up to 4, in the page's mark. Conflicts with
//! nothing. How often tiers come back is the mean of now and before, halved at each turn: when a generation is closed,
//! or as many pages went as there are. A tier of which only few came back is not protected.
//!
//! Left out: page tables and their walks, as all uses are calls; so uses do not move a page to the youngest generation,
//! and that is empty until it is older. The choice between file and anonymous pages, as there are none of the latter;
//! times of birth, as no process has to be killed. The source gives a page that comes back its tier again, and not a
//! generation: here the count is in the mark, which no policy writes when a page comes. And it knows by generations
//! whether a page came back soon; here by how many went since: no more than there are.
//!
//! ```
//! use zonal_cache::evict::{Evict, MultiGen};
//! assert_eq!((MultiGen::NAME, MultiGen::MOST), ("MGLRU", 4));
//! ```

use super::ghost::Ghosts;
use super::queue::Queues;
use super::{Evict, Told, Verdict, block_at, hits};
use crate::table::SlotId;
use core::sync::atomic::Ordering::Relaxed;
use zonal::platform::AtomicByte;

/// Most generations.
const MOST: usize = 4;
/// How many are left when ageing has to open one.
const FEWEST: u64 = 2;
const TIERS: usize = 4;
/// How many times as often as tier 0 a protected one came back.
const OUTLYING: u128 = 2;
/// How many pages of a tier have to come back before it is judged; in a small cache a sixteenth of the pages.
const BATCH: u64 = 64;

/// What became of the pages of a tier.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    /// That were looked at: they went, or were protected.
    seen: u64,
    /// That came back.
    back: u64,
}

/// The policy: see its file.
#[derive(Debug)]
pub struct MultiGen {
    /// Generation `n` is list `n % MOST`.
    lists: Queues<MOST>,
    ghosts: Ghosts,
    oldest: u64,
    youngest: u64,
    now: [Tally; TIERS],
    before: [Tally; TIERS],
}

/// Of a page with that many uses.
const fn tier(uses: u8) -> usize {
    match uses {
        0 => 0,
        1 => 1,
        2 | 3 => 2,
        _ => 3,
    }
}

const fn list(generation: u64) -> u8 {
    (generation % MOST as u64) as u8
}

impl MultiGen {
    fn with_lists(lists: Queues<MOST>, pages: usize) -> Self {
        Self {
            lists,
            ghosts: Ghosts::new(pages),
            oldest: 0,
            youngest: FEWEST,
            now: [Tally::default(); TIERS],
            before: [Tally::default(); TIERS],
        }
    }

    fn all(&self) -> usize {
        (0..MOST as u8).map(|list| self.lists.len(list)).sum()
    }

    const fn generations(&self) -> u64 {
        self.youngest - self.oldest + 1
    }

    /// The lowest tier that is protected; `TIERS` for none.
    fn protected(&self, all: usize) -> usize {
        let sum = |tier: usize| {
            let (now, before) = (self.now[tier], self.before[tier]);
            (u128::from(now.back + before.back), u128::from(now.seen + before.seen))
        };
        let batch = u128::from((all as u64 / 16).clamp(1, BATCH));
        let (base_back, base_seen) = sum(0);
        let outlying = |&tier: &usize| {
            let (back, seen) = sum(tier);
            back >= batch && back * (base_seen + batch) > OUTLYING * (base_back + 1) * seen
        };
        (1..TIERS).find(outlying).unwrap_or(TIERS)
    }

    /// What is now becomes a part of what was before.
    fn turn(&mut self) {
        for (before, now) in self.before.iter_mut().zip(&mut self.now) {
            before.seen = before.seen.midpoint(now.seen);
            before.back = before.back.midpoint(now.back);
            *now = Tally::default();
        }
    }

    /// Opens a generation if there are too few, and closes what is empty at the old end. The oldest one has a page
    /// then, if there is one.
    fn age(&mut self, all: usize) {
        for _ in 0..=MOST {
            let left = self.lists.len(list(self.oldest));
            let few = self.generations() == FEWEST + 1 && left * MOST < all;
            if few || self.generations() <= FEWEST {
                self.youngest += 1;
            }
            if left > 0 {
                return;
            }
            self.oldest += 1;
            self.turn();
        }
    }

    /// A page, or a block, went.
    fn gone(&mut self, id: SlotId, tier: usize, all: usize) {
        self.now[tier].seen += self.lists.slots(id) as u64;
        self.lists.block(id).for_each(|id| self.ghosts.insert(self.lists.key(id), tier as u8));
        self.lists.remove(id);
        if self.now.iter().map(|tally| tally.seen).sum::<u64>() >= all as u64 {
            self.turn();
        }
    }
}

impl Evict for MultiGen {
    const NAME: &'static str = "MGLRU";
    const MOST: u8 = 4;
    const BLOCKS: bool = true;

    fn new(slots: usize) -> Self {
        Self::with_lists(Queues::new(slots), slots)
    }

    fn beside(&self, _: usize, pages: usize) -> Self {
        Self::with_lists(self.lists.beside(), pages)
    }

    fn table_bytes(slots: usize, lists: usize) -> usize {
        Queues::<MOST>::bytes(slots) + lists * Ghosts::bytes(slots.div_ceil(lists))
    }

    fn insert(&mut self, id: SlotId, key: u64) {
        self.insert_block(id, 0, &|_| key);
    }

    fn insert_block(&mut self, first: SlotId, order: u32, key: &dyn Fn(SlotId) -> u64) {
        let (all, mut tiers) = (self.all(), [0; TIERS]);
        for id in block_at(first, order) {
            // A page that was away for longer would have gone in any case.
            let back = self.ghosts.take(key(id)).filter(|&(age, _)| age <= all);
            let tier = back.map_or(0, |(_, tier)| {
                self.now[usize::from(tier)].back += 1;
                usize::from(tier)
            });
            tiers[tier] += 1;
            self.lists.note(id, key(id));
        }
        // That of most of them.
        let tier = (0..TIERS).rev().max_by_key(|&tier| tiers[tier]).unwrap_or(0);
        let early = self.generations() < MOST as u64 && tier < self.protected(all);
        let into = self.oldest + u64::from(!early);
        self.lists.push(list(into), first, order, key(first));
    }

    fn halve(&mut self, first: SlotId) {
        self.lists.halve(first);
    }

    fn remove(&mut self, id: SlotId) {
        self.lists.remove(id);
    }

    fn replace(&mut self, old: SlotId, new: SlotId) {
        self.lists.replace(old, new);
    }

    fn refaults(&self) -> u64 {
        self.ghosts.back()
    }

    fn scan_told<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
        _: &mut impl FnMut(Told, SlotId),
    ) -> bool {
        let all = self.all();
        let protected = self.protected(all);
        // Each page may be protected once, come to the end again, and be offered.
        let mut looks = 2 * all;
        while looks > 0 {
            self.age(all);
            let Some(id) = self.lists.oldest(list(self.oldest)) else { return false };
            let (tier, pages) = (tier(hits(mark(id))), self.lists.slots(id));
            if tier >= protected {
                mark(id).store(0, Relaxed);
                self.now[tier].seen += pages as u64;
                self.lists.renew(list(self.oldest + 1), id);
            } else {
                match take(id) {
                    Verdict::Taken => {
                        self.gone(id, tier, all);
                        return true;
                    }
                    Verdict::Kept => self.lists.renew(list(self.youngest - 1), id),
                    Verdict::Split => {
                        self.lists.halve(id);
                        continue;
                    }
                }
            }
            looks = looks.saturating_sub(pages);
        }
        // Those that never came to the end, as others did that cannot go.
        for generation in self.oldest..=self.youngest {
            let mut looks = self.lists.len(list(generation));
            while looks > 0
                && let Some(id) = self.lists.oldest(list(generation))
            {
                let tier = tier(hits(mark(id)));
                match take(id) {
                    Verdict::Taken => {
                        self.gone(id, tier, all);
                        return true;
                    }
                    Verdict::Kept => {
                        looks = looks.saturating_sub(self.lists.slots(id));
                        self.lists.renew(list(generation), id);
                    }
                    Verdict::Split => self.lists.halve(id),
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::sync::atomic::AtomicU8;
    use proptest::prelude::*;

    /// The rules on plain lists: the generations, oldest first, of slots and keys, oldest first.
    struct Plain {
        generations: Vec<Vec<(u32, u64)>>,
        marks: Vec<u8>,
        ghosts: Ghosts,
        /// By tier what was seen and came back, in this turn and on the mean of those before.
        now: [[u64; 2]; TIERS],
        before: [[u64; 2]; TIERS],
    }

    impl Plain {
        fn new(slots: usize) -> Self {
            let (generations, marks) =
                ((0..3).map(|_| Vec::new()).collect(), (0..slots).map(|_| 0).collect());
            let (now, before) = ([[0; 2]; TIERS], [[0; 2]; TIERS]);
            Self { generations, marks, ghosts: Ghosts::new(slots), now, before }
        }

        fn all(&self) -> usize {
            self.generations.iter().map(Vec::len).sum()
        }

        fn is_protected(&self, tier: usize) -> bool {
            let sum = |tier: usize, what: usize| self.now[tier][what] + self.before[tier][what];
            let batch = (self.all() as u64 / 16).clamp(1, 64);
            (1..=tier).any(|tier| {
                let rate = sum(tier, 1) as f64 / sum(tier, 0) as f64;
                let base = (sum(0, 1) + 1) as f64 / (sum(0, 0) + batch) as f64;
                sum(tier, 1) >= batch && rate > 2.0 * base
            })
        }

        fn turn(&mut self) {
            for (before, now) in self.before.iter_mut().zip(&mut self.now) {
                *before = [(before[0] + now[0]) / 2, (before[1] + now[1]) / 2];
                *now = [0; 2];
            }
        }

        fn insert(&mut self, slot: u32, key: u64) {
            let mut tier = 0;
            if let Some((age, note)) = self.ghosts.take(key)
                && age <= self.all()
            {
                tier = usize::from(note);
                self.now[tier][1] += 1;
            }
            let second = self.generations.len() == 4 || self.is_protected(tier);
            self.generations[usize::from(second)].push((slot, key));
            self.marks[slot as usize] = 0;
        }

        fn gone(&mut self, key: u64, tier: usize, all: usize) {
            self.now[tier][0] += 1;
            self.ghosts.insert(key, tier as u8);
            if self.now.iter().map(|tally| tally[0]).sum::<u64>() >= all as u64 {
                self.turn();
            }
        }

        /// What is offered to a cache that keeps what `stays`, in order.
        fn scan(&mut self, stays: impl Fn(u32) -> bool) -> Vec<u32> {
            let (all, mut offered) = (self.all(), Vec::new());
            let tiers: Vec<bool> = (0..TIERS).map(|tier| self.is_protected(tier)).collect();
            for _ in 0..2 * all {
                while self.generations.len() < 3
                    || self.generations[0].is_empty()
                    || self.generations.len() == 3 && self.generations[0].len() * 4 < all
                {
                    if self.generations.len() < 4 {
                        self.generations.push(Vec::new());
                    }
                    if self.generations[0].is_empty() {
                        self.generations.remove(0);
                        self.turn();
                    }
                }
                let (slot, key) = self.generations[0].remove(0);
                let tier = [0, 1, 2, 2, 3][usize::from(self.marks[slot as usize])];
                if tiers[tier] {
                    self.marks[slot as usize] = 0;
                    self.now[tier][0] += 1;
                    self.generations[1].push((slot, key));
                    continue;
                }
                offered.push(slot);
                if !stays(slot) {
                    self.gone(key, tier, all);
                    return offered;
                }
                let into = self.generations.len() - 2;
                self.generations[into].push((slot, key));
            }
            let last: Vec<_> = self.generations.concat();
            for (slot, key) in last {
                offered.push(slot);
                if !stays(slot) {
                    let tier = [0, 1, 2, 2, 3][usize::from(self.marks[slot as usize])];
                    self.generations.iter_mut().for_each(|list| list.retain(|it| it.0 != slot));
                    self.gone(key, tier, all);
                    return offered;
                }
            }
            offered
        }
    }

    fn same(slots: u32, keys: u64, steps: &[(u8, u32, u64)]) -> Result<(), TestCaseError> {
        let marks: Vec<AtomicU8> = (0..slots).map(|_| AtomicU8::new(0)).collect();
        let mark = |id: SlotId| &marks[id.0 as usize];
        let (mut evict, mut plain) = (MultiGen::new(slots as usize), Plain::new(slots as usize));
        for &(what, slot, number) in steps {
            let slot = slot % slots;
            let there = plain.generations.iter().flatten().any(|it| it.0 == slot);
            match what {
                0..6 if !there => {
                    mark(SlotId(slot)).store(0, Relaxed);
                    evict.insert(SlotId(slot), number % keys + 1);
                    plain.insert(slot, number % keys + 1);
                }
                0..6 => {
                    super::super::touch::<MultiGen, _>(mark(SlotId(slot)));
                    plain.marks[slot as usize] = (plain.marks[slot as usize] + 1).min(4);
                }
                6 => {
                    evict.remove(SlotId(slot));
                    plain.generations.iter_mut().for_each(|list| list.retain(|it| it.0 != slot));
                }
                _ => {
                    let stays = |slot: u32| what == 7 && number >> (slot % 64) & 1 == 1;
                    let mut offered = Vec::new();
                    let mut take = |id: SlotId| {
                        offered.push(id.0);
                        if stays(id.0) { Verdict::Kept } else { Verdict::Taken }
                    };
                    evict.scan(&mark, &mut take);
                    prop_assert_eq!(offered, plain.scan(stays));
                }
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn it_does_what_plain_lists_do(
            steps in prop::collection::vec((0_u8..10, any::<u32>(), any::<u64>()), 0..1500),
            slots in 1_u32..40,
        ) {
            same(slots, 3 * u64::from(slots), &steps)?;
        }
    }

    #[test]
    fn a_tier_whose_pages_come_back_is_protected_and_forgotten_again() {
        let mut evict = MultiGen::new(64);
        let tally = |seen, back| Tally { seen, back };
        assert_eq!(evict.protected(64), TIERS, "nothing is known");
        evict.now = [tally(100, 10), tally(100, 21), tally(10, 3), tally(10, 9)];
        assert_eq!(evict.protected(64), 3, "tier 1 not quite, tier 2 not enough");
        evict.now[1].back = 30;
        assert_eq!(evict.protected(64), 1, "and all above");
        evict.turn();
        assert_eq!(evict.protected(64), 1);
        (0..3).for_each(|_| evict.turn());
        assert_eq!(evict.protected(64), TIERS, "too long ago");
    }
}

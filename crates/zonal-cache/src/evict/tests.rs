//! What each policy does with pages and blocks that come, are used, go, move and are asked to go.

use super::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU8;
use proptest::prelude::*;

const SLOTS: u32 = 24;

/// Pages come, are used, go, move and are asked to go, some of which cannot.
fn steps() -> impl Strategy<Value = Vec<(u8, u32, u64)>> {
    prop::collection::vec((0_u8..13, 0..SLOTS, 0_u64..1 << SLOTS), 0..400)
}

/// The orders of pieces by their first slots.
#[derive(Default)]
struct Pieces(BTreeMap<u32, u32>);

impl Pieces {
    fn slots(&self) -> Vec<u32> {
        let slots = |(&first, &order): (&u32, &u32)| first..first + (1 << order);
        self.0.iter().flat_map(slots).collect()
    }

    fn block(&self, first: u32) -> impl Iterator<Item = u32> + use<> {
        first..first + (1 << self.0[&first])
    }

    fn halve(&mut self, first: u32) {
        let order = self.0[&first] - 1;
        self.0.insert(first, order);
        self.0.insert(first + (1 << order), order);
    }

    /// Has a slot be a piece by itself.
    fn isolate(&mut self, evict: &mut impl Evict, slot: u32) {
        loop {
            let (&first, &order) = self.0.range(..=slot).next_back().expect("a piece");
            if order == 0 {
                return;
            }
            evict.halve(SlotId(first));
            self.halve(first);
        }
    }
}

/// A scan in which some stay. What was offered are pieces that are there; all of them, if none went.
fn scan<E: Evict>(
    evict: &mut E,
    marks: &[AtomicU8],
    pieces: &mut Pieces,
    stays: impl Fn(&u32) -> bool,
) -> Result<(), TestCaseError> {
    let there = pieces.slots();
    let (mut offered, mut halved, mut gone) = (Vec::new(), 0, None);
    let mut take = |id: SlotId| {
        let block: Vec<u32> = pieces.block(id.0).collect();
        let stay = block.iter().filter(|slot| stays(slot)).count();
        if stay > 0 && stay < block.len() {
            pieces.halve(id.0);
            halved += 1;
            return Verdict::Split;
        }
        offered.extend(&block);
        if stay > 0 {
            return Verdict::Kept;
        }
        gone = Some(id.0);
        Verdict::Taken
    };
    let went = evict.scan(&|id: SlotId| &marks[id.0 as usize], &mut take);
    prop_assert!(offered.iter().all(|slot| there.contains(slot)));
    prop_assert!(offered.len() <= 7 * there.len(), "{} offers", offered.len());
    prop_assert!(halved < there.len().max(1));
    prop_assert_eq!(went, !there.iter().all(&stays), "{:?} of {:?}", offered, there);
    prop_assert_eq!(went, gone.is_some());
    match gone {
        Some(first) => drop(pieces.0.remove(&first)),
        None => {
            let all = there.iter().all(|slot| offered.contains(slot));
            prop_assert!(all, "{}: {:?} of {:?}", E::NAME, offered, there);
        }
    }
    Ok(())
}

/// A policy offers what there is, and all of it before it says that nothing goes.
fn offers<E: Evict>(steps: &[(u8, u32, u64)]) -> Result<(), TestCaseError> {
    let marks: Vec<AtomicU8> = (0..SLOTS).map(|_| AtomicU8::new(0)).collect();
    let mark = |id: SlotId| &marks[id.0 as usize];
    let (mut evict, mut pieces) = (E::new(SLOTS as usize), Pieces::default());
    for &(what, slot, number) in steps {
        let there = pieces.slots();
        match what {
            0..4 if !there.contains(&slot) => {
                mark(SlotId(slot)).store(0, Relaxed);
                evict.insert(SlotId(slot), number % 30 + 1);
                pieces.0.insert(slot, 0);
            }
            4..7 if pieces.0.contains_key(&slot) => touch::<E, _>(mark(SlotId(slot))),
            7 => {
                if there.contains(&slot) {
                    pieces.isolate(&mut evict, slot);
                    pieces.0.remove(&slot);
                }
                evict.remove(SlotId(slot));
            }
            8 => {
                let other = (number % u64::from(SLOTS)) as u32;
                if there.contains(&slot) && !there.contains(&other) {
                    pieces.isolate(&mut evict, slot);
                    evict.replace(SlotId(slot), SlotId(other));
                    mark(SlotId(other)).store(mark(SlotId(slot)).load(Relaxed), Relaxed);
                    pieces.0.remove(&slot);
                    pieces.0.insert(other, 0);
                }
            }
            // Some can go, or one, or none.
            9 => scan(&mut evict, &marks, &mut pieces, |&it| number >> it & 1 != 0)?,
            10 => scan(&mut evict, &marks, &mut pieces, |&it| it != slot)?,
            11 => {
                let order = 1 + (number % 3) as u32;
                let block = slot..slot + (1 << order);
                if block.end <= SLOTS && !there.iter().any(|it| block.contains(it)) {
                    block.for_each(|it| mark(SlotId(it)).store(0, Relaxed));
                    let key = |id: SlotId| number % 30 + u64::from(id.0 - slot) + 1;
                    evict.insert_block(SlotId(slot), order, &key);
                    pieces.0.insert(slot, order);
                }
            }
            12 if pieces.0.contains_key(&slot) => {
                evict.remove(SlotId(slot));
                pieces.0.remove(&slot);
            }
            _ => {}
        }
    }
    // All is there still.
    for left in (0..pieces.slots().len()).rev() {
        if pieces.slots().is_empty() {
            break;
        }
        scan(&mut evict, &marks, &mut pieces, |_| false)?;
        prop_assert!(pieces.slots().len() <= left);
    }
    scan(&mut evict, &marks, &mut pieces, |_| false)
}

proptest! {
    #[test]
    fn all_that_is_there_is_offered_and_nothing_else(steps in steps()) {
        offers::<TwoLists>(&steps)?;
        offers::<S3Fifo>(&steps)?;
        offers::<Sieve>(&steps)?;
        offers::<MultiGen>(&steps)?;
    }
}

/// The order in which pages go that came as blocks and were used as one is that of their coming, with second chances for what
/// was used, as for single pages.
fn go_in_order<E: Evict>(used: u32) {
    let marks: Vec<AtomicU8> = (0..64).map(|_| AtomicU8::new(0)).collect();
    let order_of = |by_blocks: bool| {
        let (mut evict, mut gone) = (E::new(64), Vec::new());
        for first in (0..64).step_by(8) {
            let key = |id: SlotId| u64::from(id.0) + 1;
            if by_blocks {
                evict.insert_block(SlotId(first), 3, &key);
            } else {
                block_at(SlotId(first), 3).for_each(|id| evict.insert(id, key(id)));
            }
        }
        marks.iter().for_each(|mark| mark.store(0, Relaxed));
        let touched = marks[used as usize..used as usize + 8].iter();
        touched.for_each(|mark| (0..2).for_each(|_| touch::<E, _>(mark)));
        while gone.len() < 64 {
            let mut take = |id: SlotId| {
                gone.extend(block_at(id, if by_blocks { 3 } else { 0 }).map(|id| id.0));
                Verdict::Taken
            };
            assert!(evict.scan(&|id: SlotId| &marks[id.0 as usize], &mut take));
        }
        gone
    };
    assert_eq!(order_of(true), order_of(false), "{}", E::NAME);
}

#[test]
fn blocks_go_in_the_order_of_their_pages() {
    for used in [0, 16, 56] {
        go_in_order::<TwoLists>(used);
        go_in_order::<Sieve>(used);
        go_in_order::<MultiGen>(used);
    }
}

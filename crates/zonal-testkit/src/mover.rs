//! What a host does when it is asked to move pages: as it should, or not.
//!
//! ```
//! use zonal::Migration;
//! use zonal::{Order, Pfn};
//! use zonal_testkit::mover::{Answer, Moving, Movers};
//! let movers = Movers::default();
//! movers.set(Moving::Obeys);
//! movers.adopt(Pfn::new(7), Order::ZERO, 1);
//! let page = Migration { from: Pfn::new(7), to: Pfn::new(9), order: Order::ZERO, may_wait: true };
//! assert_eq!(movers.answer(&page), Answer::Moved);
//! assert_eq!(movers.answer(&page), Answer::Stays, "it is not there any more");
//! assert_eq!(movers.owner(Pfn::new(9)), Some((Order::ZERO, 1)));
//! ```

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use zonal::Migration;
use zonal::{Order, Pfn};

/// How the host behaves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Moving {
    /// It cannot move pages at all, and says so.
    #[default]
    Cannot,
    /// It moves what it knows, and refuses the rest.
    Obeys,
    /// It refuses everything.
    Refuses,
    /// It frees the old block by itself, then says that it has moved it.
    FreesOld,
    /// It frees the new block, then says that nothing has changed.
    FreesNew,
    /// It panics.
    Panics,
    /// In its first call it waits until [`Movers::let_go`], then moves; in others it obeys.
    HangsOnce,
}

/// What came of a request to move a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The page is in its new place.
    Moved,
    /// The page stays where it is.
    Stays,
    /// Free this block behind the allocator's back, then answer so.
    Lie {
        /// What to free.
        free: Pfn,
        /// Whether to say that the page was moved.
        moved: bool,
    },
}

/// The blocks that a host can move, with a name for what is in each.
#[derive(Debug, Default)]
pub struct Movers {
    moving: Mutex<Moving>,
    blocks: Mutex<BTreeMap<Pfn, (Order, u64)>>,
    moved: Mutex<Vec<Migration>>,
    /// (a call hangs, it may go on)
    gate: Mutex<(bool, bool)>,
    changed: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Movers {
    /// Makes the host behave so.
    pub fn set(&self, moving: Moving) {
        *lock(&self.moving) = moving;
        *lock(&self.gate) = (false, false);
    }

    /// How it behaves.
    pub fn moving(&self) -> Moving {
        *lock(&self.moving)
    }

    /// Makes an allocated block movable; `name` stands for what is in it.
    pub fn adopt(&self, pfn: Pfn, order: Order, name: u64) {
        lock(&self.blocks).insert(pfn, (order, name));
    }

    /// The block is about to be freed, or is to stay where it is.
    pub fn drop_block(&self, pfn: Pfn) -> Option<(Order, u64)> {
        lock(&self.blocks).remove(&pfn)
    }

    /// Order and name of the movable block at `pfn`.
    pub fn owner(&self, pfn: Pfn) -> Option<(Order, u64)> {
        lock(&self.blocks).get(&pfn).copied()
    }

    /// All movable blocks, by pfn.
    pub fn blocks(&self) -> Vec<(Pfn, Order, u64)> {
        lock(&self.blocks).iter().map(|(&pfn, &(order, name))| (pfn, order, name)).collect()
    }

    /// The moves since the last call.
    pub fn take_moved(&self) -> Vec<Migration> {
        std::mem::take(&mut *lock(&self.moved))
    }

    /// Waits until the host hangs.
    pub fn wait_for_hang(&self) {
        let mut gate = lock(&self.gate);
        while !gate.0 {
            gate = self.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets a host that hangs go on.
    pub fn let_go(&self) {
        lock(&self.gate).1 = true;
        self.changed.notify_all();
    }

    /// What the host does about `page`.
    ///
    /// # Panics
    /// If it is to.
    pub fn answer(&self, page: &Migration) -> Answer {
        let moving = self.moving();
        match moving {
            Moving::Cannot | Moving::Refuses => return Answer::Stays,
            Moving::FreesOld => return Answer::Lie { free: page.from, moved: true },
            Moving::FreesNew => return Answer::Lie { free: page.to, moved: false },
            Moving::Panics => panic!("the host panics while it moves {page:?}"),
            Moving::HangsOnce => {
                let mut gate = lock(&self.gate);
                let first = !std::mem::replace(&mut gate.0, true);
                self.changed.notify_all();
                while first && !gate.1 {
                    gate = self.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
                }
            }
            Moving::Obeys => {}
        }
        let mut blocks = lock(&self.blocks);
        match blocks.get(&page.from).copied() {
            Some(block) if block.0 == page.order => {
                blocks.remove(&page.from);
                blocks.insert(page.to, block);
                lock(&self.moved).push(*page);
                Answer::Moved
            }
            _ => Answer::Stays,
        }
    }
}

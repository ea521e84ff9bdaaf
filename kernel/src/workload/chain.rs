//! Blocks in a chain through their own first words: any number of them, without a heap. Each has its
//! owner's stamp, so that a frame in two hands is seen.

use crate::memory::{free_raw, words};
use zonal::{Block, Order, Pfn};

/// See the module.
pub(crate) struct Chain {
    first: Option<Pfn>,
    stamp: u64,
}

/// What a block's first words are: the next block, the stamp, the order.
const WORDS: usize = 3;
/// No next block.
const END: u64 = u64::MAX;

impl Chain {
    pub(crate) const fn new(stamp: u64) -> Self {
        Self { first: None, stamp }
    }

    /// A chain that [`into_raw`](Self::into_raw) gave up.
    pub(crate) fn from_raw(first: u64, stamp: u64) -> Self {
        Self { first: (first != END).then(|| Pfn::new(first)), stamp }
    }

    /// The chain as a number.
    pub(crate) fn into_raw(self) -> u64 {
        self.first.map_or(END, Pfn::get)
    }

    /// Hangs a block in.
    pub(crate) fn push(&mut self, block: Block) {
        let (pfn, order) = block.into_raw();
        let next = self.first.map_or(END, Pfn::get);
        let head = [next, self.stamp, u64::from(order.get())];
        // SAFETY: the block is ours, and has more bytes than that.
        unsafe { words(pfn).cast::<[u64; WORDS]>().write(head) };
        self.first = Some(pfn);
    }

    /// Takes one out and looks at its stamp.
    pub(crate) fn pop(&mut self) -> Option<(Pfn, Order)> {
        let pfn = self.first?;
        // SAFETY: the block is ours: pushed, and not taken out since.
        let [next, stamp, order] = unsafe { words(pfn).cast::<[u64; WORDS]>().read() };
        assert_eq!(stamp, self.stamp, "frame {pfn} is in two hands");
        let order = Order::new(order as u8).unwrap_or(Order::ZERO);
        self.first = (next != END).then(|| Pfn::new(next));
        Some((pfn, order))
    }

    /// Takes one out and frees it; `false` if there was none.
    pub(crate) fn free_one(&mut self) -> bool {
        let Some((pfn, order)) = self.pop() else { return false };
        // SAFETY: taken out a moment ago; it was allocated with the order that was written there.
        unsafe { free_raw(pfn, order) };
        true
    }

    /// Frees all; returns how many there were.
    pub(crate) fn free_all(mut self) -> u64 {
        let mut freed = 0;
        while self.free_one() {
            freed += 1;
        }
        freed
    }
}

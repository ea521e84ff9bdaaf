//! Clusters: arrays of frame indexes, and the lock-free stacks that pass them on.
//!
//! A cluster is owned by exactly one place: a stack, or the CPU that popped it. Its array is
//! written only by its owner; ownership travels with the cluster's number through the
//! release/acquire pair of [`Stack::push`] and [`Stack::pop`]. No lock, and no frame's state
//! or link is touched (the idea: Bonwick's magazines, 2001; Treiber's stack, 1986).

use crate::platform::{AtomicWord, Platform};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The number of a cluster, owned by the holder of this value: it does not copy.
#[derive(Debug)]
pub(crate) struct ClusterId(u32);

/// Low bits of a stack's head: cluster number + 1, or 0. The rest is a tag that changes with
/// every success, so that a head seen twice is the same head (2^40 changes before it repeats).
const ID_BITS: u32 = 24;
const ID_MASK: u64 = (1 << ID_BITS) - 1;
/// The most clusters a pool may have.
pub(crate) const MAX_CLUSTERS: u64 = ID_MASK - 1;

/// Link words in a cache line: two CPUs that push clusters of one line would pull it to and fro.
const LINE: u64 = 8;

/// The arrays of all clusters, in memory of the caller.
pub(crate) struct ClusterPool<'m, P: Platform> {
    /// Two frame indexes a word.
    slots: &'m [P::Word],
    /// For a cluster on a stack: the cluster below it, + 1.
    next: &'m [P::Word],
    words: usize,
    shared: &'m SharedState<P>,
}

/// The few words that all CPUs share. They stand apart from the allocator itself, which can
/// then be read without fear that a store changed it, and from each other's cache lines.
#[repr(align(128))]
pub struct SharedState<P: Platform> {
    /// Clusters from this number on were never used.
    fresh: P::Word,
    /// Clusters that were used and are empty.
    empty: Stack<P>,
    /// Whose turn it is among interleaved nodes.
    pub(crate) turn: P::Word,
    /// 1 when the memory to be reclaimed later was handed over.
    pub(crate) released: P::Word,
    /// 1 while memory comes or goes.
    pub(crate) resizing: P::Word,
}

impl<P: Platform> SharedState<P> {
    /// Nothing used yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            fresh: P::Word::new(0),
            empty: Stack::new(),
            turn: P::Word::new(0),
            released: P::Word::new(0),
            resizing: P::Word::new(0),
        }
    }
}

impl<P: Platform> Default for SharedState<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'m, P: Platform> ClusterPool<'m, P> {
    /// Clusters of `frames` frames each over `slots` and `next`.
    pub(crate) fn new(
        slots: &'m [P::Word],
        next: &'m [P::Word],
        shared: &'m SharedState<P>,
        frames: usize,
    ) -> Self {
        Self { slots, next, words: words_for(frames), shared }
    }

    /// A cluster with nothing in it; `None` if all are in use. Fresh ones come by the line of
    /// their link words, for one CPU: the rest of the line goes to `own`.
    pub(crate) fn take_empty(&self, own: &Stack<P>) -> Option<ClusterId> {
        if let Some(id) = self.shared.empty.pop(self) {
            return Some(id);
        }
        let capacity = self.next.len() as u64;
        if self.shared.fresh.load(Relaxed) >= capacity {
            return None;
        }
        // Relaxed: the numbers are all that is agreed on; the memory behind them is fresh.
        let first = self.shared.fresh.fetch_add(LINE, Relaxed);
        for id in first + 1..(first + LINE).min(capacity) {
            own.push(self, ClusterId(id as u32));
        }
        (first < capacity).then_some(ClusterId(first as u32))
    }

    pub(crate) fn put_empty(&self, id: ClusterId) {
        self.shared.empty.push(self, id);
    }

    fn array(&self, id: &ClusterId) -> &[P::Word] {
        &self.slots[id.0 as usize * self.words..][..self.words]
    }

    /// Fills the array of a cluster that the caller owns.
    #[inline]
    pub(crate) fn write(&self, id: &ClusterId, frames: &[u32]) {
        let array = self.array(id);
        let pairs = frames.chunks_exact(2);
        if let (&[last], Some(word)) = (pairs.remainder(), array.last()) {
            word.store(u64::from(last), Relaxed);
        }
        for (word, pair) in array.iter().zip(pairs) {
            word.store(u64::from(pair[0]) | u64::from(pair[1]) << 32, Relaxed);
        }
    }

    /// Copies the array of a cluster that the caller owns.
    #[inline]
    pub(crate) fn read(&self, id: &ClusterId, frames: &mut [u32]) {
        let array = self.array(id);
        let mut pairs = frames.chunks_exact_mut(2);
        for (word, pair) in array.iter().zip(&mut pairs) {
            let value = word.load(Relaxed);
            pair[0] = value as u32;
            pair[1] = (value >> 32) as u32;
        }
        if let ([last], Some(word)) = (pairs.into_remainder(), array.last()) {
            *last = word.load(Relaxed) as u32;
        }
    }
}

/// Words of one cluster's array.
pub(crate) const fn words_for(frames: usize) -> usize {
    frames.div_ceil(2)
}

/// A lock-free stack of clusters.
pub(crate) struct Stack<P: Platform> {
    head: P::Word,
    /// Clusters on the stack, counted after the fact: may be off by those in motion.
    count: P::Word,
}

impl<P: Platform> Stack<P> {
    pub(crate) fn new() -> Self {
        Self { head: P::Word::new(0), count: P::Word::new(0) }
    }

    /// Clusters on the stack; a hint while others push and pop.
    pub(crate) fn len(&self) -> u64 {
        // A pop may be counted before its push was: below zero reads as none.
        (self.count.load(Relaxed) as i64).max(0) as u64
    }

    #[expect(clippy::needless_pass_by_value, reason = "ownership moves to the stack")]
    pub(crate) fn push(&self, pool: &ClusterPool<'_, P>, id: ClusterId) {
        let mut head = self.head.load(Relaxed);
        loop {
            pool.next[id.0 as usize].store(head & ID_MASK, Relaxed);
            // Release, with the Acquire of `pop`: array and next are written before the
            // cluster can be seen. Later changes of the head are read-modify-writes, so they
            // carry this release on.
            match self.head.compare_exchange(head, retag(head, id.0), Release, Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        self.count.fetch_add(1, Relaxed);
    }

    pub(crate) fn pop(&self, pool: &ClusterPool<'_, P>) -> Option<ClusterId> {
        let mut head = self.head.load(Acquire);
        loop {
            let id = (head & ID_MASK).checked_sub(1)? as u32;
            // May be stale if another CPU popped the cluster meanwhile; then the tag has
            // changed and the exchange fails.
            let below = pool.next[id as usize].load(Relaxed);
            let new = (head & !ID_MASK).wrapping_add(1 << ID_BITS) | below;
            match self.head.compare_exchange(head, new, Acquire, Acquire) {
                Ok(_) => {
                    self.count.fetch_add(u64::MAX, Relaxed);
                    return Some(ClusterId(id));
                }
                Err(now) => head = now,
            }
        }
    }

    /// Calls `visit` with every cluster, top first; only while nothing else runs.
    pub(crate) fn visit(&self, pool: &ClusterPool<'_, P>, mut visit: impl FnMut(&ClusterId)) {
        let mut at = self.head.load(Acquire) & ID_MASK;
        while let Some(id) = at.checked_sub(1) {
            visit(&ClusterId(id as u32));
            at = pool.next[id as usize].load(Relaxed);
        }
    }
}

fn retag(head: u64, id: u32) -> u64 {
    (head & !ID_MASK).wrapping_add(1 << ID_BITS) | (u64::from(id) + 1)
}

/// The depot, seen from one CPU and zone.
pub(crate) struct DepotContext<'a, P: Platform> {
    pub(crate) pool: &'a ClusterPool<'a, P>,
    /// The exchanges of all CPUs and zones, CPU by CPU.
    pub(crate) exchanges: &'a [Exchange<P>],
    /// How many zones there are, and which is meant.
    pub(crate) zones: usize,
    pub(crate) zone: usize,
    pub(crate) cpu: usize,
}

impl<P: Platform> DepotContext<'_, P> {
    /// This CPU's exchange for the zone.
    #[inline]
    pub(crate) fn own_exchange(&self) -> &Exchange<P> {
        &self.exchanges[self.cpu * self.zones + self.zone]
    }

    /// Every CPU's exchange for the zone, this CPU's neighbour first.
    pub(crate) fn all_exchanges(&self) -> impl Iterator<Item = &Exchange<P>> {
        let of_zone = || self.exchanges.iter().skip(self.zone).step_by(self.zones);
        of_zone().skip(self.cpu + 1).chain(of_zone().take(self.cpu + 1))
    }
}

/// One CPU's shard of a zone's depot: full clusters by migrate type, and empty ones.
///
/// The CPU pushes and pops here without meeting others; they come only when they have found
/// nothing elsewhere. Aligned so that two CPUs' shards share no cache line (nor its pair).
#[repr(align(128))]
pub struct Exchange<P: Platform> {
    pub(crate) full: [Stack<P>; 3],
    pub(crate) empty: Stack<P>,
}

impl<P: Platform> Exchange<P> {
    /// A shard with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self { full: core::array::from_fn(|_| Stack::new()), empty: Stack::new() }
    }
}

impl<P: Platform> Default for Exchange<P> {
    fn default() -> Self {
        Self::new()
    }
}

//! What the lock of a list guards: pages by kind, each kind with a policy of its own.

use crate::evict::Evict;
use crate::table::{KINDS, Kind, SlotId};
use zonal::policy::trace::Lru;

/// What [`Options::swappiness`](crate::cache::Options::swappiness) is of.
pub(crate) const MOST_SWAPPINESS: u64 = 200;

/// What a policy of a list takes to be made.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) slots: usize,
    /// Its share of these.
    pub(crate) most: usize,
    /// And of those that may be in use to begin with.
    pub(crate) first: usize,
}

impl Size {
    /// A policy of that size, over the same slots as another.
    pub(crate) fn beside<E: Evict>(self, other: &E) -> E {
        let mut policy = other.beside(self.slots, self.most);
        policy.begin_with(self.first);
        policy
    }
}

/// What the lock of a list guards.
pub(crate) struct Held<E> {
    /// Of pages of files, and of anonymous ones where there are any.
    file: E,
    anon: Option<E>,
    size: Size,
    /// Pages on it by kind; after a policy has panicked about.
    pages: [usize; KINDS],
    /// Pieces of more than one page.
    blocks: usize,
    holds: u64,
    /// How often a kind was chosen.
    turn: u64,
}

impl<E: Evict> Held<E> {
    pub(crate) const fn new(file: E, size: Size) -> Self {
        Self { file, anon: None, size, pages: [0; KINDS], blocks: 0, holds: 0, turn: 0 }
    }

    pub(crate) const fn count_hold(&mut self) {
        self.holds += 1;
    }

    pub(crate) fn stats(&self) -> ListStats {
        let [file, anon, unevictable] = self.pages;
        let (blocks, holds) = (self.blocks, self.holds);
        ListStats { file, anon, unevictable, blocks, holds, refaults: self.refaults() }
    }

    /// Pages that came back soon, as far as the policies know.
    pub(crate) fn refaults(&self) -> u64 {
        self.file.refaults() + self.anon.as_ref().map_or(0, E::refaults)
    }

    /// The policy of a kind, if pages of it have come.
    pub(crate) const fn policy_there(&mut self, kind: Kind) -> Option<&mut E> {
        match kind {
            Kind::File => Some(&mut self.file),
            Kind::Anon => self.anon.as_mut(),
            Kind::Kept => None,
        }
    }

    /// The list of a page, as the tracepoints name it.
    pub(crate) fn name(&self, kind: Kind, id: SlotId) -> Lru {
        match kind {
            Kind::File if self.file.is_active(id) => Lru::ActiveFile,
            Kind::File => Lru::InactiveFile,
            Kind::Anon if self.anon.as_ref().is_some_and(|policy| policy.is_active(id)) => {
                Lru::ActiveAnon
            }
            Kind::Anon => Lru::InactiveAnon,
            Kind::Kept => Lru::Unevictable,
        }
    }

    /// A piece of that many pages has left, and its policy knows.
    pub(crate) fn gone(&mut self, kind: Kind, count: usize) {
        let pages = &mut self.pages[kind as usize];
        *pages = pages.saturating_sub(count);
        if count > 1 {
            self.blocks = self.blocks.saturating_sub(1);
        }
    }

    /// Pieces have become two, and their policy knows: there are `more` blocks.
    pub(crate) const fn count_blocks(&mut self, more: isize) {
        self.blocks = self.blocks.saturating_add_signed(more);
    }

    pub(crate) fn halve(&mut self, kind: Kind, first: SlotId, order: u32) {
        if let Some(policy) = self.policy(kind) {
            policy.halve(first);
        }
        self.count_blocks(more_blocks(order));
    }

    pub(crate) fn policy(&mut self, kind: Kind) -> Option<&mut E> {
        match kind {
            Kind::File => Some(&mut self.file),
            Kind::Anon => Some(self.anon.get_or_insert_with(|| self.size.beside(&self.file))),
            Kind::Kept => None,
        }
    }

    pub(crate) fn insert(&mut self, kind: Kind, id: SlotId, key: u64) {
        self.pages[kind as usize] += 1;
        if let Some(policy) = self.policy(kind) {
            policy.insert(id, key);
        }
    }

    pub(crate) fn insert_block(
        &mut self,
        kind: Kind,
        first: SlotId,
        order: u32,
        key: &dyn Fn(SlotId) -> u64,
    ) {
        self.pages[kind as usize] += 1 << order;
        self.blocks += 1;
        if let Some(policy) = self.policy(kind) {
            policy.insert_block(first, order, key);
        }
    }

    /// A piece leaves: its pages are 2 to the power of `order`.
    pub(crate) fn remove(&mut self, kind: Kind, first: SlotId, order: u32) {
        self.gone(kind, 1 << order);
        if let Some(policy) = self.policy(kind) {
            policy.remove(first);
        }
    }

    /// Which kind gives a page up first: anonymous ones count `swappiness` of 200, pages of files the rest.
    pub(crate) fn first(&mut self, swappiness: u64) -> Kind {
        let anon = self.pages[Kind::Anon as usize] as u64 * swappiness;
        let file = self.pages[Kind::File as usize] as u64 * (MOST_SWAPPINESS - swappiness);
        self.turn += 1;
        if share(self.turn, anon + file) < anon { Kind::Anon } else { Kind::File }
    }

    /// Pages that a policy may give up.
    pub(crate) const fn evictable(&self) -> usize {
        self.pages[Kind::File as usize] + self.pages[Kind::Anon as usize]
    }
}

/// How many more blocks there are when one of that order is halved: two for one, or two pages.
pub(crate) const fn more_blocks(order: u32) -> isize {
    if order > 1 { 1 } else { -1 }
}

/// A number below `all` that is another each turn, spread evenly: multiples of the golden ratio are, whatever `all`.
pub(crate) fn share(turn: u64, all: u64) -> u64 {
    let mixed = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((u128::from(mixed) * u128::from(all)) >> 64) as u64
}

/// A list of a cache: see [`PageCache::lists`](crate::PageCache::lists).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ListStats {
    /// Pages of files.
    pub file: usize,
    /// Anonymous pages that have a store.
    pub anon: usize,
    /// Pages that cannot be reclaimed: anonymous ones without a store.
    pub unevictable: usize,
    /// Entries that are several pages: they came together and are one to the [policy](crate::evict::Evict::insert_block).
    pub blocks: usize,
    /// How often the lock was held.
    pub holds: u64,
    /// Pages that came back soon after they had gone, as far as the policy [knows](Evict::refaults).
    pub refaults: u64,
}

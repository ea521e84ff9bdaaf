//! The pages of all files: for each what became of it, and its place on a list of its zone. A page that
//! is not cached is on none. 9 bytes a page of all files, whether it is cached or not.

use super::ZoneName;

/// A page of a file, counted over all files.
pub type PageId = u32;

const NONE: u32 = u32::MAX;

const ZONE: u8 = 0b0000_0011;
const DIRTY: u8 = 0b0000_0100;
const WRITEBACK: u8 = 0b0000_1000;
const REFERENCED: u8 = 0b0001_0000;
const ACTIVE: u8 = 0b0010_0000;
/// Reclaim found it, and wants it back as soon as it is clean.
const WANTED: u8 = 0b0100_0000;
/// It is being read.
const LOCKED: u8 = 0b1000_0000;

/// What a page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

macro_rules! flags {
    ($($is:ident $set:ident $bit:ident;)*) => {
        impl Flags {
            $(
                pub(crate) const fn $is(self) -> bool {
                    self.0 & $bit != 0
                }

                pub(crate) const fn $set(&mut self, on: bool) {
                    if on { self.0 |= $bit } else { self.0 &= !$bit }
                }
            )*
        }
    };
}

flags! {
    is_dirty set_dirty DIRTY;
    is_writeback set_writeback WRITEBACK;
    is_referenced set_referenced REFERENCED;
    is_active set_active ACTIVE;
    is_wanted set_wanted WANTED;
    is_locked set_locked LOCKED;
}

impl Flags {
    /// The zone that it is in, if it is cached.
    pub(crate) const fn zone(self) -> Option<ZoneName> {
        match self.0 & ZONE {
            1 => Some(ZoneName::Dma32),
            2 => Some(ZoneName::Normal),
            _ => None,
        }
    }
}

/// A list of pages, newest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    newest: u32,
    oldest: u32,
    length: u64,
}

impl Default for List {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, length: 0 }
    }
}

impl List {
    pub(crate) const fn len(&self) -> u64 {
        self.length
    }
}

/// Whether a list is of the active pages, as an index.
pub(crate) const INACTIVE: usize = 0;
pub(crate) const ACTIVE_LIST: usize = 1;

/// All pages.
#[derive(Debug)]
pub(crate) struct Pages {
    flags: Vec<Flags>,
    newer: Vec<u32>,
    older: Vec<u32>,
    /// Inactive and active, by zone.
    lists: [[List; 2]; 2],
}

impl Pages {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            flags: vec![Flags::default(); count],
            newer: vec![NONE; count],
            older: vec![NONE; count],
            lists: Default::default(),
        }
    }

    pub(crate) fn get(&self, page: PageId) -> Flags {
        self.flags[page as usize]
    }

    pub(crate) fn get_mut(&mut self, page: PageId) -> &mut Flags {
        &mut self.flags[page as usize]
    }

    pub(crate) fn list(&self, zone: ZoneName, which: usize) -> &List {
        &self.lists[zone as usize][which]
    }

    /// The page that was put on a list first.
    pub(crate) fn oldest(&self, zone: ZoneName, which: usize) -> Option<PageId> {
        let oldest = self.list(zone, which).oldest;
        (oldest != NONE).then_some(oldest)
    }

    fn link(&mut self, page: PageId, zone: ZoneName, which: usize) {
        let list = &mut self.lists[zone as usize][which];
        let newest = list.newest;
        list.newest = page;
        list.length += 1;
        if newest == NONE {
            list.oldest = page;
        } else {
            self.newer[newest as usize] = page;
        }
        self.newer[page as usize] = NONE;
        self.older[page as usize] = newest;
    }

    fn unlink(&mut self, page: PageId, zone: ZoneName, which: usize) {
        let (newer, older) = (self.newer[page as usize], self.older[page as usize]);
        let list = &mut self.lists[zone as usize][which];
        list.length -= 1;
        if newer == NONE {
            list.newest = older;
        } else {
            self.older[newer as usize] = older;
        }
        if older == NONE {
            self.lists[zone as usize][which].oldest = newer;
        } else {
            self.newer[older as usize] = newer;
        }
    }

    /// A page that was not cached is, in that zone.
    pub(crate) fn enter(&mut self, page: PageId, zone: ZoneName) {
        self.flags[page as usize] = Flags(zone as u8 + 1);
        self.link(page, zone, INACTIVE);
    }

    fn place(&self, page: PageId) -> Option<(ZoneName, usize)> {
        let flags = self.get(page);
        Some((flags.zone()?, usize::from(flags.is_active())))
    }

    /// A page is cached no more; its zone.
    pub(crate) fn leave(&mut self, page: PageId) -> Option<ZoneName> {
        let (zone, which) = self.place(page)?;
        self.unlink(page, zone, which);
        self.flags[page as usize] = Flags::default();
        Some(zone)
    }

    /// Puts a page where the newest are.
    pub(crate) fn rotate(&mut self, page: PageId) {
        if let Some((zone, which)) = self.place(page) {
            self.unlink(page, zone, which);
            self.link(page, zone, which);
        }
    }

    /// A page becomes active, or is so no more.
    pub(crate) fn set_active(&mut self, page: PageId, active: bool) {
        if let Some((zone, which)) = self.place(page) {
            self.unlink(page, zone, which);
            self.get_mut(page).set_active(active);
            self.link(page, zone, usize::from(active));
        }
    }

    /// A page was used: once is noted, twice makes it active.
    pub(crate) fn touch(&mut self, page: PageId) {
        let flags = self.get(page);
        if flags.zone().is_none() {
            return;
        }
        if flags.is_referenced() && !flags.is_active() {
            self.get_mut(page).set_referenced(false);
            self.set_active(page, true);
        } else {
            self.get_mut(page).set_referenced(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Against queues that hold page numbers.
    #[test]
    fn lists_are_those_of_a_model() {
        let mut dice = fastrand::Rng::with_seed(7);
        let mut pages = Pages::new(50);
        let mut model: [[VecDeque<u32>; 2]; 2] = Default::default();
        let zones = [ZoneName::Dma32, ZoneName::Normal];
        for _ in 0..20_000 {
            let page = dice.u32(..50);
            let at = model.iter().flatten().position(|list| list.contains(&page));
            match (at, dice.u8(..4)) {
                (None, _) => {
                    let zone = zones[usize::from(dice.bool())];
                    pages.enter(page, zone);
                    model[zone as usize][INACTIVE].push_front(page);
                }
                (Some(at), 0) => {
                    assert_eq!(pages.leave(page), Some(zones[at / 2]));
                    model[at / 2][at % 2].retain(|it| *it != page);
                }
                (Some(at), 1) => {
                    pages.rotate(page);
                    model[at / 2][at % 2].retain(|it| *it != page);
                    model[at / 2][at % 2].push_front(page);
                }
                (Some(at), to) => {
                    let to = usize::from(to == 2);
                    pages.set_active(page, to == 1);
                    model[at / 2][at % 2].retain(|it| *it != page);
                    model[at / 2][to].push_front(page);
                }
            }
            for (zone, lists) in zones.into_iter().zip(&model) {
                for which in [INACTIVE, ACTIVE_LIST] {
                    assert_eq!(pages.list(zone, which).len() as usize, lists[which].len());
                    assert_eq!(pages.oldest(zone, which), lists[which].back().copied());
                }
            }
        }
    }

    #[test]
    fn the_second_use_makes_a_page_active() {
        let mut pages = Pages::new(1);
        pages.enter(0, ZoneName::Normal);
        pages.touch(0);
        assert!(!pages.get(0).is_active());
        pages.touch(0);
        assert!(pages.get(0).is_active() && !pages.get(0).is_referenced());
    }
}

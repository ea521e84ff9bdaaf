//! Pages whose bytes a handle has copied a short while ago. They are in a cache of the CPU still, and to [have them
//! fetched](crate::fetch) once more takes longer than it saves.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Pages that are remembered, a power of 2: 128 KiB, as small a second level as CPUs have.
const PAGES: usize = 32;

/// What a handle remembers. No words of the host: what they say decides nothing, and threads that share the handle may
/// forget each other's.
pub(crate) struct Recent([AtomicU32; PAGES]);

impl Recent {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; PAGES])
    }

    /// Whether this page is remembered; it is from now on.
    #[inline(always)]
    pub(crate) fn remember(&self, index: u64) -> bool {
        let place = &self.0[index as usize % PAGES];
        // Not 0 for the first. Another page that has the same by chance is one that is not fetched.
        let page = (index as u32).wrapping_add(1);
        // Relaxed: a hint.
        let is_there = place.load(Relaxed) == page;
        if !is_there {
            place.store(page, Relaxed);
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_remembered_until_as_many_others_have_come() {
        let recent = Recent::new();
        assert!(!recent.remember(0) && recent.remember(0));
        (1..PAGES as u64).for_each(|index| assert!(!recent.remember(index)));
        (0..PAGES as u64).for_each(|index| assert!(recent.remember(index)));
        assert!(!recent.remember(PAGES as u64) && !recent.remember(0));
    }
}

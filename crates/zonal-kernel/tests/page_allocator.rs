//! An allocator as the crate `ax-allocator` wants it, against a set of the pages that are in use.
#![cfg(feature = "ax-allocator")]

mod fake;

use ax_allocator::{AllocError, BaseAllocator, PageAllocator};
use fake::Fake;
use std::collections::BTreeSet;
use zonal::map::PhysAddr;
use zonal::plan::Config;
use zonal_kernel::page_allocator::Pages;
use zonal_kernel::{Global, Machine};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// A generator of numbers: `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((z ^ (z >> 27)) % limit as u64) as usize
    }
}

/// The pages in use, by address, and those that are there.
struct Model {
    there: BTreeSet<usize>,
    used: BTreeSet<usize>,
}

impl Model {
    /// Notes what was allocated: pages that are there, and not in use.
    fn take(&mut self, start: usize, count: usize, align: usize) {
        assert!(start.is_multiple_of(align), "{start:#x} at {align:#x}");
        for page in (start..).step_by(PAGE).take(count) {
            assert!(self.there.contains(&page), "{page:#x} is no memory");
            assert!(self.used.insert(page), "{page:#x} is in use");
            // SAFETY: the page is ours alone.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(page).write_bytes(0x5a, PAGE) };
        }
    }

    /// Some neighbours that are in use.
    fn some(&self, random: &mut Random) -> Option<(usize, usize)> {
        let start = *self.used.iter().nth(random.below(self.used.len().max(1)))?;
        let run = (start..).step_by(PAGE).take_while(|page| self.used.contains(page)).count();
        Some((start, 1 + random.below(run.min(40))))
    }

    fn check(&self, pages: &Pages<Fake>) {
        assert_eq!(pages.used_pages(), self.used.len());
        assert_eq!(pages.available_pages() + self.used.len(), pages.total_pages());
    }
}

/// Each way to allocate and free, at random.
fn commands(pages: &mut Pages<Fake>, model: &mut Model, random: &mut Random, steps: usize) {
    let mut at = 0;
    for step in 0..steps {
        let count = [1, 1 + random.below(8), 1 + random.below(600)][random.below(3)];
        let align = PAGE << random.below(10);
        match random.below(5) {
            0 | 1 => {
                if let Ok(start) = pages.alloc_pages(count, align) {
                    model.take(start, count, align);
                }
            }
            2 => {
                let page = *model.there.iter().nth(random.below(model.there.len())).unwrap();
                if let Ok(start) = pages.alloc_pages_at(page, count, PAGE) {
                    assert_eq!(start, page);
                    model.take(start, count, PAGE);
                    at += 1;
                }
            }
            _ => {
                if let Some((start, count)) = model.some(random) {
                    pages.dealloc_pages(start, count);
                    (0..count).for_each(|n| assert!(model.used.remove(&(start + n * PAGE))));
                }
            }
        }
        if step % 16 == 0 {
            model.check(pages);
        }
    }
    assert!(at > steps / 200, "of {steps} commands, {at} had a place");
}

static FRAMES: Global<Fake> = Global::new();

#[test]
fn pages_are_allocated_once_and_all_come_back() {
    fake::memory(24 * MIB);
    let base = Fake::address(PhysAddr(0)).expose_provenance();
    // SAFETY: the fake machine's memory begins at `base`, no other code uses it, and the commands give back what they
    // were given, or what is free.
    let mut pages = unsafe { Pages::<Fake>::new(&FRAMES, Config::new(1)) }.room(0..24 << 20);
    assert!(matches!(pages.alloc_pages(1, PAGE), Err(AllocError::NoMemory)));
    assert!(matches!(pages.add_memory(base, MIB), Err(AllocError::NoMemory)));
    assert_eq!((pages.total_pages(), pages.used_pages()), (0, 0));

    // Ends that are no pages' are left out.
    pages.init(base + 4 * MIB - 100, 4 * MIB + 4000);
    let before = pages.total_pages();
    assert!((1000..1024).contains(&before), "{before} of 1024, less the tables of 24 MiB");
    let there = (base + 4 * MIB..base + 8 * MIB).step_by(PAGE).take(before).collect();
    let mut model = Model { there, used: BTreeSet::new() };
    let mut random = Random(26);
    commands(&mut pages, &mut model, &mut random, 2000);

    // Memory below, above, and once more; in parts of a page and without any.
    for (start, end) in [(2 * MIB + 1, 3 * MIB), (16 * MIB, 24 * MIB)] {
        pages.add_memory(base + start, end - start).unwrap();
        model.there.extend((base..base + end).step_by(PAGE).filter(|page| *page >= base + start));
    }
    assert_eq!(pages.total_pages(), before + 255 + 2048);
    let again = pages.add_memory(base + 20 * MIB, 8 * PAGE);
    assert!(matches!(again, Err(AllocError::MemoryOverlap)));
    for (start, size) in [(24 * MIB, MIB), (9 * MIB + 1, PAGE), (9 * MIB, 0)] {
        let added = pages.add_memory(base + start, size);
        assert!(matches!(added, Err(AllocError::InvalidParam)), "{added:?}");
    }
    commands(&mut pages, &mut model, &mut random, 4000);

    // What cannot be.
    for (count, align) in [(0, PAGE), (1, 0), (1, 2048), (1, 3 * PAGE)] {
        assert!(matches!(pages.alloc_pages(count, align), Err(AllocError::InvalidParam)));
        let at = pages.alloc_pages_at(base + 16 * MIB, count, align);
        assert!(matches!(at, Err(AllocError::InvalidParam)), "{at:?}");
    }
    // No physical address that is aligned is seen at one that is.
    let more = 2 << base.trailing_zeros();
    assert!(matches!(pages.alloc_pages(1, more), Err(AllocError::InvalidParam)), "{more:#x}");
    let at = pages.alloc_pages_at(base + 16 * MIB + PAGE, 1, 2 * PAGE);
    assert!(matches!(at, Err(AllocError::InvalidParam)));
    for (start, count) in [(9 * MIB, 1), (24 * MIB, 1), (20 * MIB, usize::MAX / PAGE)] {
        assert!(pages.alloc_pages_at(base + start, count, PAGE).is_err());
    }
    assert_eq!(pages.refused(), 0);
    model.check(&pages);

    while let Some((start, count)) = model.some(&mut random) {
        pages.dealloc_pages(start, count);
        (0..count).for_each(|n| assert!(model.used.remove(&(start + n * PAGE))));
    }
    model.check(&pages);
    // A free of what is free, of a part of a page, of no page.
    pages.dealloc_pages(base + 20 * MIB, 1);
    pages.dealloc_pages(base + 20 * MIB + 1, 1);
    pages.dealloc_pages(base + 20 * MIB, 0);
    assert_eq!(pages.refused(), 3);
    model.check(&pages);
    // There is one already.
    let again = std::panic::AssertUnwindSafe(|| pages.init(base + 4 * MIB, 4 * MIB));
    assert!(std::panic::catch_unwind(again).is_err());
}

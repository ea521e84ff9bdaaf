//! What the simulation asks of the host's memory, so as not to wait for it.
//!
//! The lines of a machine and the metadata of its frames take hundreds of MiB and are touched here
//! and there: most accesses miss the host's caches, and with pages of 4 KiB its TLB too. All of
//! this is advice: what is in memory does not depend on it.

use crate::run::SimError;
use core::ptr::NonNull;

/// `count` values, for a table as large as memory.
///
/// # Errors
/// [`SimError::Build`] if the host has no room for them.
pub(crate) fn table<T>(count: usize, value: impl FnMut() -> T) -> Result<Vec<T>, SimError> {
    let mut table = room(count)?;
    table.resize_with(count, value);
    Ok(table)
}

/// Makes room for `more` values; if there is none, for some to spare.
///
/// # Errors
/// [`SimError::Build`] if the host has no room for them.
pub(crate) fn reserve<T>(table: &mut Vec<T>, more: usize) -> Result<(), SimError> {
    let wanted = table.len().saturating_add(more);
    if wanted > table.capacity() {
        // It is moved, not stretched, so that the advice comes before the first use.
        let mut larger = room(wanted.saturating_add(wanted / 8))?;
        larger.append(table);
        *table = larger;
    }
    Ok(())
}

fn room<T>(count: usize) -> Result<Vec<T>, SimError> {
    let mut table = Vec::new();
    table.try_reserve_exact(count).map_err(|error| {
        let mib = count.saturating_mul(size_of::<T>()) >> 20;
        SimError::Build(format!("this computer has no {mib} MiB for one of its tables: {error}"))
    })?;
    let memory = NonNull::from(table.spare_capacity_mut());
    advise_huge(memory.cast(), size_of::<T>() * memory.len());
    Ok(table)
}

/// Asks the host for huge pages for `bytes` bytes from an address on, which it may refuse.
#[cfg(target_os = "linux")]
pub(crate) fn advise_huge(start: NonNull<u8>, bytes: usize) {
    /// Smaller tables do not need them.
    const WORTH_IT: usize = 4 << 20;

    if bytes < WORTH_IT {
        return;
    }
    let (skipped, length) = whole_pages(start.addr().get(), bytes);
    let first = start.as_ptr().wrapping_add(skipped);
    // SAFETY: the advice is about what backs pages, not about what is in them, and so harmless
    // whatever is there; lengths are of whole pages, so that the kernel, which rounds them up,
    // advises on nothing else.
    unsafe { libc::madvise(first.cast(), length, libc::MADV_HUGEPAGE) };
}

/// The whole pages within `bytes` bytes from an address on: where the first begins, and how long
/// they are together.
#[cfg(target_os = "linux")]
fn whole_pages(address: usize, bytes: usize) -> (usize, usize) {
    /// The largest pages that Linux is built with; what is whole of these is of smaller ones.
    const PAGE: usize = 64 << 10;
    let skipped = (address.next_multiple_of(PAGE) - address).min(bytes);
    (skipped, (bytes - skipped) / PAGE * PAGE)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn advise_huge(_: NonNull<u8>, _: usize) {}

/// What is at an address will be needed soon.
#[inline]
#[cfg(target_arch = "x86_64")]
pub(crate) fn prefetch(address: usize) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which accesses nothing and is allowed for any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::without_provenance(address)) };
}

#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch(_: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Large enough for the host to be asked.
    const LARGE: usize = 1 << 20;

    #[test]
    #[cfg(target_os = "linux")]
    fn advice_is_about_whole_pages_inside() {
        const KIB: usize = 1 << 10;
        assert_eq!(whole_pages(64 * KIB, 128 * KIB), (0, 128 * KIB));
        assert_eq!(whole_pages(64 * KIB, 128 * KIB + 1), (0, 128 * KIB), "not one more");
        assert_eq!(whole_pages(64 * KIB + 16, 192 * KIB), (64 * KIB - 16, 128 * KIB));
        assert_eq!(whole_pages(16, 8), (8, 0), "not beyond the end");
    }

    #[test]
    fn what_there_is_no_room_for_is_an_error() {
        let refused = table(usize::MAX, || 0_u64).expect_err("no machine has so much");
        assert!(matches!(refused, SimError::Build(_)), "{refused:?}");
        assert!(refused.to_string().contains("MiB for one of its tables"), "{refused}");
        let mut numbers = table(3, || 7_u64).expect("every machine has so little");
        reserve(&mut numbers, usize::MAX).expect_err("no machine has so much");
        reserve(&mut numbers, 5).expect("every machine has so little");
        assert!(numbers == [7; 3] && numbers.capacity() >= 8, "{numbers:?}");
    }

    #[test]
    fn advice_changes_nothing() {
        let mut next = 0u64;
        let counted = table(LARGE, || {
            next += 1;
            next
        });
        let mut numbers = counted.expect("there is room");
        for _ in 0..3 {
            reserve(&mut numbers, LARGE / 2).expect("there is room");
            let (place, room) = (numbers.as_ptr(), numbers.capacity() - numbers.len());
            assert!(room >= LARGE / 2);
            numbers.extend((0..LARGE / 2).map(|at| next + 1 + at as u64));
            next += LARGE as u64 / 2;
            assert_eq!(numbers.as_ptr(), place, "there was room");
        }
        prefetch(numbers.as_ptr().addr());
        prefetch(0);
        prefetch(usize::MAX);
        assert!(numbers.iter().copied().eq(1..=next));
        assert_eq!(next, LARGE as u64 * 5 / 2);
    }
}

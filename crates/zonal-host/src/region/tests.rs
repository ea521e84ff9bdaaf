//! Against the kernel that is there.

use super::*;
use crate::sys::shim::{refuse, refuse_each};

const MIB: usize = 1 << 20;

fn at(region: &Region, offset: usize) -> *mut u8 {
    assert!(offset < region.len());
    region.base().as_ptr().wrapping_add(offset)
}

fn write(region: &Region, offset: usize, value: u8) {
    // SAFETY: inside the region; the tests write only where they committed.
    unsafe { at(region, offset).write(value) };
}

fn read(region: &Region, offset: usize) -> u8 {
    // SAFETY: inside the region; the tests read only where they committed.
    unsafe { at(region, offset).read() }
}

#[test]
fn a_region_is_aligned_rounded_and_unmapped() {
    let region = Region::reserve(5000).unwrap();
    assert_eq!(region.base().addr().get() % Order::MAX.bytes(), 0);
    assert_eq!(region.len(), 2 * FRAME_SIZE);
    // Four times the address space there is, if they were all kept.
    for _ in 0..128 {
        drop(Region::reserve(1 << 42).unwrap());
    }
}

#[test]
fn a_kernel_with_larger_pages_is_refused() {
    assert_eq!(check_page(page_bytes()), Ok(()));
    let error = check_page(16384).unwrap_err();
    assert_eq!(error, RegionError::LargePages { bytes: 16384 });
    assert_eq!(error.to_string(), "the kernel's pages of 16384 bytes are larger than a frame");
}

#[test]
fn memory_is_zero_kept_and_given_back() {
    let region = Region::reserve_mixed(2 * MIB, 2 * MIB).unwrap();
    region.commit(0..4 * MIB).unwrap();
    assert_eq!(region.resident(0..4 * MIB), Ok(0));
    for half in [0, 2 * MIB] {
        assert_eq!(read(&region, half + 100), 0);
        write(&region, half + 100, 7);
        region.commit(half..half + FRAME_SIZE).unwrap();
        assert_eq!(read(&region, half + 100), 7, "committed twice");
        assert_eq!(region.resident(half..half + 2 * MIB), Ok(FRAME_SIZE));
        // SAFETY: no references, contents of no use.
        unsafe { region.give_back(half..half + MIB, GiveBack::Now) }.unwrap();
        assert_eq!(region.resident(half..half + 2 * MIB), Ok(0));
        assert_eq!(read(&region, half + 100), 0);
        write(&region, half + 100, 9);
        // SAFETY: no references, contents of no use.
        unsafe { region.give_back(half..half + MIB, GiveBack::WhenNeeded) }.unwrap();
        assert!([0, 9].contains(&read(&region, half + 100)));
        write(&region, half + 100, 8);
        assert_eq!(read(&region, half + 100), 8);
    }
}

#[test]
fn a_tebibyte_costs_nothing() {
    let region = Region::reserve_mixed(0, 1 << 40).unwrap();
    region.commit(0..region.len()).unwrap();
    write(&region, region.len() - 1, 1);
    assert_eq!(region.resident(region.len() - MIB..region.len()), Ok(FRAME_SIZE));
}

#[test]
fn counted_memory_must_exist() {
    // 128 TiB of address space less what is used; no machine has as much memory, but a kernel
    // that was told to promise anything promises that too.
    let region = Region::reserve(1 << 46).unwrap();
    let always = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
    let done = region.commit(0..region.len());
    if always.trim() == "1" {
        return assert_eq!(done, Ok(()));
    }
    let error = done.unwrap_err();
    assert_eq!(error, RegionError::NoMemory { bytes: 1 << 46, errno: Errno::NO_MEMORY });
    assert_eq!(
        error.to_string(),
        "70368744177664 bytes are more memory than there is: Cannot allocate memory (os error 12)"
    );
    region.commit(0..MIB).unwrap();
    write(&region, 0, 1);
}

#[test]
fn impossible_sizes_are_refused() {
    assert_eq!(Region::reserve(0).unwrap_err(), RegionError::Empty);
    assert_eq!(Region::huge_pages(0).unwrap_err(), RegionError::Empty);
    for bytes in [usize::MAX, usize::MAX - (8 << 20), 1 << 60] {
        for made in [Region::reserve(bytes), Region::zeroed(bytes), Region::huge_pages(bytes)] {
            let error = made.unwrap_err();
            assert!(matches!(error, RegionError::NoAddressSpace { .. }), "{error}");
            assert!(error.to_string().contains("more address space than there is"));
        }
    }
}

#[test]
fn parts_are_checked() {
    let region = Region::reserve(MIB).unwrap();
    #[expect(clippy::reversed_empty_ranges, reason = "what is tested")]
    let bad = [0..0, 4096..0, 1..4096, 0..100, 0..MIB + 4096, MIB..MIB + 4096, 0..usize::MAX];
    for part in bad {
        let error = RegionError::BadPart { start: part.start, end: part.end, len: region.len() };
        assert_eq!(region.commit(part.clone()), Err(error));
        assert_eq!(region.advise_huge(part.clone()), Err(error));
        assert_eq!(region.resident(part.clone()), Err(error));
        // SAFETY: nothing is in use.
        assert_eq!(unsafe { region.give_back(part, GiveBack::Now) }, Err(error));
    }
    assert_eq!(
        region.commit(1..2).unwrap_err().to_string(),
        "bytes 1 to 2 are no whole frames inside a region of 1048576 bytes"
    );
}

#[test]
fn huge_pages_when_the_kernel_has_them() {
    let region = Region::reserve(4 * MIB).unwrap();
    region.commit(0..4 * MIB).unwrap();
    let built_in = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    let advised = region.advise_huge(0..4 * MIB);
    assert_eq!(advised.is_ok(), built_in, "{advised:?}");

    match Region::huge_pages(HUGE_PAGE - 1) {
        Ok(pool) => {
            assert!(pool.is_huge_pages());
            assert_eq!(pool.len(), HUGE_PAGE);
            pool.commit(0..HUGE_PAGE).unwrap();
            write(&pool, HUGE_PAGE - 1, 3);
            assert_eq!(read(&pool, HUGE_PAGE - 1), 3);
            // SAFETY: nothing is in use.
            let given = unsafe { pool.give_back(0..HUGE_PAGE, GiveBack::Now) };
            assert!(given.unwrap_err().to_string().starts_with("the kernel refuses MADV_DONTNEED"));
        }
        Err(error) => {
            assert!(matches!(error, RegionError::NoHugePages { bytes: HUGE_PAGE, .. }));
            assert!(error.to_string().starts_with("1 huge pages of 2 MiB are more than"));
        }
    }
    let error = Region::huge_pages(1 << 46).unwrap_err();
    assert!(matches!(error, RegionError::NoHugePages { .. }), "{error}");
}

/// Everything a region does, errors or not.
fn life() {
    let Ok(region) = Region::reserve_mixed(2 * MIB, 6 * MIB) else { return };
    for part in [0..2 * MIB, 2 * MIB..8 * MIB] {
        let _ = region.commit(part.clone());
        let _ = region.advise_huge(part.clone());
        let _ = region.resident(part.clone());
        // SAFETY: nothing is in use.
        let _ = unsafe { region.give_back(part, GiveBack::Now) };
    }
}

#[test]
fn after_a_refused_call_what_is_left_is_the_regions_own() {
    // The second is what a mapping fails with when another thread was quicker.
    for errno in [libc::ENOMEM, libc::EEXIST] {
        assert!(refuse_each(errno, life) >= 12);
        assert!(refuse_each(errno, || drop(Region::zeroed(1))) >= 4);
        assert!(refuse_each(errno, || drop(Region::huge_pages(1))) >= 3);
    }
}

#[test]
fn other_addresses_are_looked_for_when_another_thread_was_quicker() {
    let made = |at| refuse(at, libc::EEXIST, || Region::reserve_mixed(MIB, MIB).map(|r| r.len()));
    // The first mapping finds addresses; those after it take them. How many calls are between
    // them depends on whether what was found is aligned.
    let mut lost = 0;
    for (len, ledger) in (2..=8).map(made) {
        if ledger.refused.is_some_and(|(call, _)| call == "mmap") {
            assert_eq!(len, Ok(2 * MIB));
            lost += 1;
        }
    }
    assert!(lost > 0, "no mapping was refused");
}

#[test]
fn ends_that_stay_mapped_do_so_as_long_as_the_region() {
    for at in [1, 2] {
        let ((base, len), ledger) = refuse(at, libc::ENOMEM, || {
            let region = Region::reserve(MIB).unwrap();
            (region.base(), region.len())
        });
        assert_eq!((base.addr().get() % Order::MAX.bytes(), len), (0, MIB));
        assert_eq!(ledger.refused.map(|(name, _)| name), Some("munmap"));
        assert!(ledger.mapped.is_empty() && ledger.strangers.is_empty());
    }
}

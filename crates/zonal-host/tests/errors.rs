//! What an arena that cannot be had says about it.

use std::error::Error;
use zonal::plan::{MAX_CPUS, PlanError};
use zonal_host::arena::Builder;
use zonal_host::region::{HUGE_PAGE, RegionError};
use zonal_host::{Arena, ArenaError, HugePages};

const MIB: usize = 1 << 20;

fn refused(builder: Builder) -> ArenaError {
    let error = builder.open().unwrap_err();
    let source = error.source().expect("every error has a cause").to_string();
    assert_eq!(error.to_string(), format!("cannot open the arena: {source}"));
    error
}

#[test]
fn nothing() {
    assert_eq!(refused(Arena::builder()), ArenaError::Memory(RegionError::Empty));
    let huge = Arena::builder().huge(HugePages::HugeTlb);
    assert_eq!(refused(huge), ArenaError::Memory(RegionError::Empty));
}

/// Unless the kernel was told to promise anything.
#[test]
fn more_memory_than_there_is() {
    let setting = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
    let arena = Arena::builder().bytes(1 << 43).reserve(1 << 43);
    if setting.trim() == "1" {
        return assert!(arena.open().is_ok());
    }
    let error = refused(arena);
    assert!(matches!(error, ArenaError::Memory(RegionError::NoMemory { bytes, .. })
        if bytes == 1 << 43));
    assert!(error.to_string().contains("8796093022208 bytes are more memory than there is"));
}

#[test]
fn more_address_space_than_there_is() {
    for builder in [
        Arena::builder().bytes(usize::MAX),
        Arena::builder().bytes(MIB).reserve(usize::MAX),
        Arena::builder().reserve(1 << 47),
        Arena::builder().bytes(usize::MAX).huge(HugePages::HugeTlb),
    ] {
        let error = refused(builder);
        assert!(matches!(error, ArenaError::Memory(RegionError::NoAddressSpace { .. })));
        assert!(error.to_string().contains("more address space than there is"), "{error}");
    }
}

#[test]
fn more_frames_than_a_table_can_have() {
    let error = refused(Arena::builder().reserve(1 << 45));
    assert!(matches!(error, ArenaError::Plan(PlanError::TooLarge { .. })), "{error}");
}

#[test]
fn impossible_numbers_of_cpus() {
    let small = || Arena::builder().bytes(4 * MIB);
    for (builder, cpus) in [
        (small().cpus(0), 0),
        (small().cpus(MAX_CPUS + 1).owners(0), MAX_CPUS + 1),
        (small().cpus(1).owners(MAX_CPUS), MAX_CPUS + 1),
        (small().cpus(u32::MAX).owners(u32::MAX), u32::MAX),
    ] {
        assert_eq!(refused(builder), ArenaError::Plan(PlanError::Cpus { cpus }));
    }
}

#[test]
fn huge_pages_that_are_not_there() {
    let error = refused(Arena::builder().bytes(1 << 43).huge(HugePages::HugeTlb));
    assert!(matches!(error, ArenaError::Memory(RegionError::NoHugePages { .. })), "{error}");
    assert!(error.to_string().contains("4194304 huge pages of 2 MiB"), "{error}");
}

#[test]
fn huge_pages_that_are() {
    let advised = Arena::builder().bytes(8 * MIB).huge(HugePages::Advise).open();
    let built_in = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    assert_eq!(advised.is_ok(), built_in, "{advised:?}");

    match Arena::builder().bytes(HUGE_PAGE + 1).huge(HugePages::HugeTlb).open() {
        Ok(arena) => {
            use zonal_host::region::GiveBack;
            assert_eq!((arena.len(), arena.counted()), (2 * HUGE_PAGE, 2 * HUGE_PAGE));
            drop(arena.alloc(&zonal::Request::frame().zero()).unwrap());
            let given = arena.give_back(9, GiveBack::Now);
            assert!(
                matches!(given, Ok(done) if done.examined == 0)
                    || matches!(given, Err(RegionError::Advice { .. }))
            );
        }
        Err(error) => {
            assert!(matches!(error, ArenaError::Memory(RegionError::NoHugePages { .. })));
        }
    }
}

#[test]
fn sizes_are_rounded_to_frames() {
    let arena = Arena::builder().bytes(5000).reserve(9000).open().unwrap();
    assert_eq!((arena.counted(), arena.len()), (8192, 12288));
    let arena = Arena::builder().bytes(9000).reserve(1).open().unwrap();
    assert_eq!((arena.counted(), arena.len()), (12288, 12288));
    let arena = Arena::builder().reserve(1).open().unwrap();
    assert_eq!((arena.counted(), arena.len()), (0, 4096));
}

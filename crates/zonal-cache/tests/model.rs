//! Random commands beside a model: a plain vector of bytes, with all that it was since the last sync that
//! went well. Every policy, every store that threads can have, faults of the store, and the power cut off.
//! The simulated disk has a model of its own, of several virtual CPUs at once: `zonal-sim`, `src/cache/bytes`.

use crate::bytes::{BLOCKS, FIXED, Kind, Lie, ring, run};
use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use zonal_cache::evict::Evict;
use zonal_cache::lru::{LruLock, PerNode, PerOwner, PerZone, Whole};
use zonal_cache::{MultiGen, S3Fifo, Sieve, TwoLists};

/// How many random runs a test makes: `ZONAL_TEST_EFFORT` times as many.
fn config() -> ProptestConfig {
    let effort = std::env::var("ZONAL_TEST_EFFORT").ok().and_then(|effort| effort.parse().ok());
    ProptestConfig {
        cases: 40 * effort.unwrap_or(1_u32),
        ..ProptestConfig::with_source_file(file!())
    }
}

fn check<E: Evict, L: LruLock>(kind: Kind) {
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let done = runner.run(&crate::bytes::commands(), |commands| {
        run::<E, L>(kind, Lie::No, &commands).map_err(TestCaseError::fail)
    });
    done.unwrap_or_else(|error| panic!("{} on {kind:?}: {error}", E::NAME));
    assert!(BLOCKS.load(Relaxed) > 0, "no block on any list");
    if kind == Kind::Registered {
        match FIXED.each_ref().map(|count| count.load(Relaxed)) {
            [_, 0] => eprintln!("run without registered buffers: the kernel takes none"),
            [reads, _] => assert!(reads > 0, "no read into a registered buffer"),
        }
    }
}

macro_rules! runs {
    ($($name:ident: $policy:ident on $kind:ident;)*) => {$(
        #[test]
        fn $name() {
            check::<$policy, Whole>(Kind::$kind);
        }
    )*};
}

runs! {
    two_lists_in_memory: TwoLists on Memory;
    s3_fifo_in_memory: S3Fifo on Memory;
    sieve_in_memory: Sieve on Memory;
    multi_gen_in_memory: MultiGen on Memory;
    two_lists_with_threads: TwoLists on Threads;
    s3_fifo_with_threads: S3Fifo on Threads;
    sieve_with_threads: Sieve on Threads;
    multi_gen_with_threads: MultiGen on Threads;
    two_lists_on_files: TwoLists on File;
    s3_fifo_on_files: S3Fifo on File;
    sieve_on_files: Sieve on File;
    multi_gen_on_files: MultiGen on File;
    two_lists_on_buffered_files: TwoLists on Buffered;
    s3_fifo_on_buffered_files: S3Fifo on Buffered;
    sieve_on_buffered_files: Sieve on Buffered;
    multi_gen_on_buffered_files: MultiGen on Buffered;
    two_lists_on_a_ring: TwoLists on Ring;
    s3_fifo_on_a_ring: S3Fifo on Ring;
    sieve_on_a_ring: Sieve on Ring;
    multi_gen_on_a_ring: MultiGen on Ring;
    two_lists_on_a_ring_with_buffers: TwoLists on Registered;
    s3_fifo_on_a_ring_with_buffers: S3Fifo on Registered;
    sieve_on_a_ring_with_buffers: Sieve on Registered;
    multi_gen_on_a_ring_with_buffers: MultiGen on Registered;
}

#[test]
fn lists_under_several_locks() {
    // Those that other tests have: each is the cache compiled once more.
    check::<TwoLists, PerZone>(Kind::Memory);
    check::<TwoLists, PerNode<15>>(Kind::Memory);
    check::<TwoLists, PerOwner<1, 4>>(Kind::Memory);
    check::<S3Fifo, PerOwner<1, 4>>(Kind::Memory);
    check::<Sieve, PerOwner<4, 4>>(Kind::Memory);
    check::<MultiGen, PerOwner<4, 4>>(Kind::Memory);
}

/// Runs until one finds what the store does wrong.
fn finds(kind: Kind, lie: Lie) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        // It ends with the first that is found.
        cases: 20 * config().cases,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..config()
    });
    let done = runner.run(&crate::bytes::commands(), |commands| {
        run::<Sieve, Whole>(kind, lie, &commands).map_err(TestCaseError::fail)
    });
    assert!(done.is_err(), "{lie:?} on {kind:?} was not found");
}

#[test]
fn canary_a_write_that_is_lost_is_found() {
    Kind::ALL.into_iter().for_each(|kind| finds(kind, Lie::Write));
}

#[test]
fn canary_one_of_several_writes_that_is_lost_is_found() {
    // Without a ring no store here is given several.
    if ring().is_some() {
        finds(Kind::Ring, Lie::Together);
        finds(Kind::Registered, Lie::Together);
    }
}

#[test]
fn canary_a_read_with_a_wrong_byte_is_found() {
    Kind::ALL.into_iter().for_each(|kind| finds(kind, Lie::Read));
}

#[test]
fn canary_a_later_read_of_nothing_is_found() {
    Kind::ALL.into_iter().for_each(|kind| finds(kind, Lie::Later));
}

#[test]
fn canary_a_flush_that_does_nothing_is_found() {
    // Files have no power to cut off.
    finds(Kind::Memory, Lie::Flush);
    finds(Kind::Threads, Lie::Flush);
}

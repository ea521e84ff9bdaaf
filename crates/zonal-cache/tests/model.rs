//! Random commands beside a model: a plain vector of bytes, with all that it was since the last sync that
//! went well. Every policy, both stores, faults of the store, and the power cut off.

use crate::bytes::{Kind, Lie, run};
use proptest::prelude::*;
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
}

#[test]
fn two_lists_in_memory() {
    check::<TwoLists, Whole>(Kind::Memory);
}

#[test]
fn s3_fifo_in_memory() {
    check::<S3Fifo, Whole>(Kind::Memory);
}

#[test]
fn sieve_in_memory() {
    check::<Sieve, Whole>(Kind::Memory);
}

#[test]
fn multi_gen_in_memory() {
    check::<MultiGen, Whole>(Kind::Memory);
}

#[test]
fn two_lists_on_files() {
    check::<TwoLists, Whole>(Kind::File);
}

#[test]
fn s3_fifo_on_files() {
    check::<S3Fifo, Whole>(Kind::File);
}

#[test]
fn sieve_on_files() {
    check::<Sieve, Whole>(Kind::File);
}

#[test]
fn multi_gen_on_files() {
    check::<MultiGen, Whole>(Kind::File);
}

#[test]
fn lists_under_several_locks() {
    check::<TwoLists, PerZone>(Kind::Memory);
    check::<TwoLists, PerNode<3>>(Kind::Memory);
    check::<TwoLists, PerOwner<2, 3>>(Kind::Memory);
    check::<S3Fifo, PerOwner<5, 2>>(Kind::Memory);
    check::<Sieve, PerOwner<1, 2>>(Kind::Memory);
    check::<MultiGen, PerOwner<4, 2>>(Kind::Memory);
}

/// Runs until one finds what the store does wrong.
fn finds(lie: Lie) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 0,
        ..config()
    });
    let done = runner.run(&crate::bytes::commands(), |commands| {
        run::<Sieve, Whole>(Kind::Memory, lie, &commands).map_err(TestCaseError::fail)
    });
    assert!(done.is_err(), "{lie:?} was not found");
}

#[test]
fn canary_a_write_that_is_lost_is_found() {
    finds(Lie::Write);
}

#[test]
fn canary_a_read_with_a_wrong_byte_is_found() {
    finds(Lie::Read);
}

#[test]
fn canary_a_flush_that_does_nothing_is_found() {
    finds(Lie::Flush);
}

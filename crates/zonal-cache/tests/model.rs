//! Random commands beside a model: a plain vector of bytes, with all that it was since the last sync that
//! went well. Every policy, both stores, faults of the store, and the power cut off.
#![cfg(feature = "std")]

mod bytes;

use bytes::{Kind, Lie, run};
use proptest::prelude::*;
use zonal_cache::evict::Evict;
use zonal_cache::{MultiGen, S3Fifo, Sieve, TwoLists};

/// How many random runs a test makes: `ZONAL_TEST_EFFORT` times as many.
fn config() -> ProptestConfig {
    let effort = std::env::var("ZONAL_TEST_EFFORT").ok().and_then(|effort| effort.parse().ok());
    ProptestConfig {
        cases: 40 * effort.unwrap_or(1_u32),
        ..ProptestConfig::with_source_file(file!())
    }
}

fn check<E: Evict>(kind: Kind) {
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let done = runner.run(&bytes::commands(), |commands| {
        run::<E>(kind, Lie::No, &commands).map_err(TestCaseError::fail)
    });
    done.unwrap_or_else(|error| panic!("{} on {kind:?}: {error}", E::NAME));
}

#[test]
fn two_lists_in_memory() {
    check::<TwoLists>(Kind::Memory);
}

#[test]
fn s3_fifo_in_memory() {
    check::<S3Fifo>(Kind::Memory);
}

#[test]
fn sieve_in_memory() {
    check::<Sieve>(Kind::Memory);
}

#[test]
fn multi_gen_in_memory() {
    check::<MultiGen>(Kind::Memory);
}

#[test]
fn two_lists_on_files() {
    check::<TwoLists>(Kind::File);
}

#[test]
fn s3_fifo_on_files() {
    check::<S3Fifo>(Kind::File);
}

#[test]
fn sieve_on_files() {
    check::<Sieve>(Kind::File);
}

#[test]
fn multi_gen_on_files() {
    check::<MultiGen>(Kind::File);
}

/// Runs until one finds what the store does wrong.
fn finds(lie: Lie) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 0,
        ..config()
    });
    let done = runner.run(&bytes::commands(), |commands| {
        run::<Sieve>(Kind::Memory, lie, &commands).map_err(TestCaseError::fail)
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

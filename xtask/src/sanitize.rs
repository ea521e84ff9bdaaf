//! Tests of `zonal-host` under a sanitizer of the compiler. No step of the preflight: the flags are
//! unstable, and two more builds take minutes.
//!
//! The standard library comes built without a sanitizer. The address sanitizer sees all the same what
//! the project's code does to memory, and every allocation. The thread sanitizer does not see what the
//! library orders by itself, in its mutexes, condition variables and queues, and takes accesses that
//! these order for races; so it has those tests alone in which zonal's own atomics order what threads
//! do. Where the library ends a thread it is told to look away; threads as a whole, or the harness, must not
//! be suppressed: a function of theirs is at the bottom of every stack.

use crate::steps::target_dir;
use anyhow::Result;
use clap::ValueEnum;
use xshell::{Shell, cmd};

/// A sanitizer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Sanitizer {
    /// Accesses out of bounds, after a free, and leaks
    Address,
    /// Data races
    Thread,
}

/// Naming a target keeps the flags from build scripts and macros, which run in the compiler.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Where the library orders accesses in code that is not instrumented: its counted pointers, its
/// queue, the end of a thread that is joined, what is made once, and the harness's own list of tests.
const SUPPRESSED: &str = "\
race:alloc::sync::Arc
race:std::sync::mpmc
race:^core::ptr::drop_in_place::<std::thread::lifecycle::JoinInner
race:^core::ptr::drop_in_place::<std::thread::scoped::Scope
race:^<zonal_host::fence::Membarrier as zonal_host::fence::Fence>::available$
race:^test::run_test$
";

impl Sanitizer {
    fn flags(self) -> &'static str {
        match self {
            Self::Address => "-Zsanitizer=address",
            Self::Thread => "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
        }
    }

    fn tests(self) -> &'static [&'static str] {
        match self {
            Self::Address => &["--lib", "--tests"],
            Self::Thread => &["--lib", "--test", "arena", "--test", "owned"],
        }
    }

    /// Tests of how much memory or how many addresses the process has left, which are fewer; and the one that
    /// refuses every call of a thread, the sanitizer's own among them.
    fn skipped(self) -> &'static [&'static str] {
        match self {
            Self::Address => &["a_tebibyte_is_cheap", "every_call_in_turn"],
            Self::Thread => {
                &["counted_memory_must_exist", "huge_pages_when", "idle_blocks_are_given_back"]
            }
        }
    }
}

pub(crate) fn run(shell: &Shell, sanitizer: Sanitizer) -> Result<()> {
    let name = sanitizer.to_possible_value().map_or_else(String::new, |it| it.get_name().into());
    let directory = target_dir(shell).join("sanitize").join(name);
    let suppressions = directory.join("suppressions.txt");
    shell.write_file(&suppressions, SUPPRESSED)?;
    let tests = sanitizer.tests();
    let skip = sanitizer.skipped().iter().flat_map(|test| ["--skip", test]);
    cmd!(shell, "cargo test --locked --target {TARGET} -p zonal-host {tests...} -- {skip...}")
        // Gives unstable flags to the stable compiler.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", sanitizer.flags())
        .env("CARGO_TARGET_DIR", &directory)
        .env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()))
        .run()?;
    Ok(())
}

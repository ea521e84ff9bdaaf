//! What threads of this crate wait with, in one place: `tests/loom_waiting.rs` models the files that
//! use it with loom's in its place.

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::OnceLock;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};

pub(crate) mod thread {
    pub(crate) use std::thread::{
        Builder, JoinHandle, Scope, ScopedJoinHandle, current, panicking, yield_now,
    };
}

use std::cell::Cell;

thread_local! {
    static HERE: u8 = const { 0 };
    static SEEN: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
}

/// A number that no other thread has now, and not 0.
pub(crate) fn here() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// Notes that this thread has seen `count` of the thing at an address; whether that is what it noted last.
pub(crate) fn saw(address: usize, count: u64) -> bool {
    SEEN.replace((address, count)) == (address, count)
}

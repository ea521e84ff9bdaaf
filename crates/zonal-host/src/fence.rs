//! Asymmetric fences: the frequent side pays nothing, the rare side pays for both.
//!
//! Two threads each write a flag and then read the other's. Unless both put a full fence in
//! between, both may read the old value (the store buffer of x86 does that). Linux's
//! `membarrier` call makes every running thread of the process pass a full fence; so the
//! rare side calls it, and the frequent side only has to keep the *compiler* from swapping
//! its store and its load.
//!
//! Source: `membarrier(2)`, command `PRIVATE_EXPEDITED`, Linux 4.14.
//!
//! ```
//! use zonal_host::fence::{Fence, FullFence, Membarrier};
//! // Kernels older than 4.14, or a seccomp filter, may not offer it; then there is a reason.
//! if let Err(why) = Membarrier::available() {
//!     assert!(!why.is_empty());
//! }
//! assert!(FullFence::available().is_ok());
//! ```

use crate::sync;
use crate::sys::{Calls, Kernel};
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence};

/// A pair of fences, of which the frequent one may be cheap.
///
/// # Safety
/// If [`available`](Fence::available) has returned `Ok`, then for every `light` in one thread
/// and every `heavy` in another: either what precedes `heavy` is visible to what follows
/// `light`, or what precedes `light` is visible to what follows `heavy`.
pub unsafe trait Fence {
    /// The frequent side.
    fn light();
    /// The rare side; may take microseconds.
    fn heavy();
    /// Whether the pair works on this machine; asked before the first `light`.
    ///
    /// # Errors
    /// What is missing.
    fn available() -> Result<(), &'static str>;
}

/// `light` is nothing but a note to the compiler, `heavy` a system call.
#[derive(Clone, Copy, Debug)]
pub struct Membarrier;

const CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    Kernel::membarrier(command) == Ok(0)
}

// SAFETY: once the process is registered, PRIVATE_EXPEDITED returns only after every thread of
// the process that was running has executed a full fence, and a thread that was not running
// executes one when it is switched in. That fence falls either after the other side's `light`
// point (then what preceded `light`, kept in order by the compiler fence, is visible once the
// call returns) or before it (then what follows `light` sees what preceded the call). A call
// that fails does not return from `heavy`.
unsafe impl Fence for Membarrier {
    #[inline(always)]
    fn light() {
        compiler_fence(Ordering::SeqCst);
    }

    #[cold]
    fn heavy() {
        if !membarrier(CMD_PRIVATE_EXPEDITED) {
            // A process that registered before it forked may have to do so again.
            let again = membarrier(CMD_REGISTER_PRIVATE_EXPEDITED);
            assert!(again && membarrier(CMD_PRIVATE_EXPEDITED), "membarrier worked, and stopped");
        }
    }

    fn available() -> Result<(), &'static str> {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        if *REGISTERED.get_or_init(|| membarrier(CMD_REGISTER_PRIVATE_EXPEDITED)) {
            Ok(())
        } else {
            Err("the kernel refuses membarrier(PRIVATE_EXPEDITED), which needs Linux 4.14")
        }
    }
}

/// Both sides pay for a full fence: for machines without [`Membarrier`], and for the model
/// checker, which knows no system calls.
#[derive(Clone, Copy, Debug)]
pub struct FullFence;

// SAFETY: of two sequentially consistent fences one comes first in their total order, and what
// precedes it is visible to what follows the other.
unsafe impl Fence for FullFence {
    #[inline]
    fn light() {
        sync::fence(sync::Ordering::SeqCst);
    }

    fn heavy() {
        sync::fence(sync::Ordering::SeqCst);
    }

    fn available() -> Result<(), &'static str> {
        Ok(())
    }
}

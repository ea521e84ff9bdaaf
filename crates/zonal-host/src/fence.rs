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
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, compiler_fence};

/// A pair of fences, of which the frequent one may be cheap.
///
/// # Safety
/// If [`available`](Fence::available) has returned `Ok`, then for every `light` in one thread
/// and every `heavy` in another that returned `Ok`: either what precedes `heavy` is visible to
/// what follows `light`, or what precedes `light` is visible to what follows `heavy`.
pub unsafe trait Fence {
    /// The frequent side.
    fn light();
    /// The rare side; may take microseconds.
    ///
    /// # Errors
    /// [`Refused`]: there was no fence.
    fn heavy() -> Result<(), Refused>;
    /// Whether the pair works on this machine; asked before the first `light`.
    ///
    /// # Errors
    /// What is missing.
    fn available() -> Result<(), &'static str>;
}

/// The kernel refuses a fence that it once granted: a filter (seccomp) was put in front of it
/// since, for this thread or for all. [`refusals`] counts these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("membarrier worked, and is refused now: a handle's cache cannot be reached")
    }
}

impl std::error::Error for Refused {}

/// Relaxed: a count.
static REFUSALS: AtomicU64 = AtomicU64::new(0);

/// How often in this process a fence was [refused](Refused): each time a cache could not be
/// drained. If it is not 0, frames may sit in the caches of
/// [handles](crate::Handle) while requests fail; let the filter pass `membarrier`, or take the
/// handles after it is in place, so that [`Membarrier::available`] can say no.
#[must_use]
pub fn refusals() -> u64 {
    REFUSALS.load(Ordering::Relaxed)
}

/// `light` is nothing but a note to the compiler, `heavy` a system call.
#[derive(Clone, Copy, Debug)]
pub struct Membarrier;

const CMD_QUERY: i32 = 0;
const CMD_PRIVATE_EXPEDITED: i32 = 1 << 3;
const CMD_REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
/// No command, and never one together with others.
const CMD_NONE: i32 = i32::MAX;

fn granted(command: i32) -> bool {
    Kernel::membarrier(command) == Ok(0)
}

// Places in `REASONS`.
const NO_CALL: u8 = 0;
const FILTERED: u8 = 1;
const REFUSED: u8 = 2;
/// Why there is no fence.
const REASONS: [&str; 3] = [
    "the kernel has no membarrier(PRIVATE_EXPEDITED), which needs Linux 4.14",
    "a filter answers membarrier in the kernel's place",
    "the kernel refuses membarrier(PRIVATE_EXPEDITED)",
];

/// Registers the process, and makes sure that it is the kernel that answers: a filter may answer
/// 0 in its place, which would be taken for a fence. If not, which of the [`REASONS`] it is.
fn register() -> Result<(), u8> {
    let both = CMD_PRIVATE_EXPEDITED | CMD_REGISTER_PRIVATE_EXPEDITED;
    match Kernel::membarrier(CMD_QUERY) {
        Ok(commands) if commands & both == both => {}
        _ => return Err(NO_CALL),
    }
    if granted(CMD_NONE) {
        return Err(FILTERED);
    }
    if granted(CMD_REGISTER_PRIVATE_EXPEDITED) && granted(CMD_PRIVATE_EXPEDITED) {
        return Ok(());
    }
    Err(REFUSED)
}

/// What [`register`] said, once it has: a reason by its place, [`YES`](Self::YES), or
/// [`UNKNOWN`](Self::UNKNOWN).
///
/// No `OnceLock`: a child of a `fork` made while another thread is inside would wait for that
/// thread for ever. Here each who finds no answer asks, which is harmless, and the first stands.
struct Answer(AtomicU8);

impl Answer {
    const YES: u8 = u8::MAX - 1;
    const UNKNOWN: u8 = u8::MAX;

    const fn new() -> Self {
        Self(AtomicU8::new(Self::UNKNOWN))
    }

    fn or_ask(&self, ask: impl FnOnce() -> Result<(), u8>) -> Result<(), &'static str> {
        // Acquire: by a yes that is read, the process was registered before.
        let mut answer = self.0.load(Ordering::Acquire);
        if answer == Self::UNKNOWN {
            let asked = ask().map_or_else(|why| why, |()| Self::YES);
            // Release: the registration comes before the yes. Acquire: as above, for that of the
            // thread that was first.
            let (done, first) = (Ordering::Release, Ordering::Acquire);
            let stored = self.0.compare_exchange(Self::UNKNOWN, asked, done, first);
            answer = stored.map_or_else(|first| first, |_| asked);
        }
        if answer == Self::YES { Ok(()) } else { Err(REASONS[usize::from(answer)]) }
    }
}

// SAFETY: once the process is registered, PRIVATE_EXPEDITED returns only after every thread of
// the process that was running has executed a full fence, and a thread that was not running
// executes one when it is switched in. That fence falls either after the other side's `light`
// point (then what preceded `light`, kept in order by the compiler fence, is visible once the
// call returns) or before it (then what follows `light` sees what preceded the call). A call
// that fails is no `Ok`; and that it is the kernel that answers 0 was checked once.
unsafe impl Fence for Membarrier {
    #[inline(always)]
    fn light() {
        compiler_fence(Ordering::SeqCst);
    }

    #[cold]
    fn heavy() -> Result<(), Refused> {
        // A process that registered before it forked may have to do so again.
        let again = || granted(CMD_REGISTER_PRIVATE_EXPEDITED) && granted(CMD_PRIVATE_EXPEDITED);
        if granted(CMD_PRIVATE_EXPEDITED) || again() {
            return Ok(());
        }
        REFUSALS.fetch_add(1, Ordering::Relaxed);
        Err(Refused)
    }

    fn available() -> Result<(), &'static str> {
        static REGISTERED: Answer = Answer::new();
        REGISTERED.or_ask(register)
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

    fn heavy() -> Result<(), Refused> {
        sync::fence(sync::Ordering::SeqCst);
        Ok(())
    }

    fn available() -> Result<(), &'static str> {
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::shim::{refuse, refuse_all};

    #[test]
    fn who_answers_zero_to_everything_is_not_believed() {
        let (registered, ledger) = refuse_all("membarrier", 0, register);
        assert_eq!(registered, Err(NO_CALL));
        assert_eq!(ledger.calls, 1);
        if register().is_err() {
            return; // none here
        }
        // One that lets the query through. The process has registered by now.
        for command in [1, 2] {
            let (registered, _) = refuse(command, 0, register);
            assert_eq!(registered.is_err(), command == 1, "{registered:?}");
        }
    }

    #[test]
    fn a_refusal_at_any_step_is_an_error() {
        if register().is_ok() {
            for at in [0, 2, 3] {
                assert!(refuse(at, libc::EPERM, register).0.is_err(), "call {at}");
            }
        }
    }

    #[test]
    fn who_asks_keeps_no_other_waiting() {
        let answer = Answer::new();
        let late = answer.or_ask(|| {
            // As a child would that was forked in here.
            assert!(answer.or_ask(|| Err(FILTERED)).unwrap_err().contains("a filter answers"));
            Ok(())
        });
        assert!(late.unwrap_err().contains("a filter answers"), "the first answer stands");
        assert_eq!(answer.or_ask(|| panic!("it has been asked")), late);
        let answer = Answer::new();
        assert_eq!(answer.or_ask(|| Ok(())), Ok(()));
        assert_eq!(answer.or_ask(|| Err(REFUSED)), Ok(()), "it has been asked");
    }

    #[test]
    fn a_fence_that_is_refused_is_counted_and_no_panic() {
        let before = refusals();
        let (done, _) = refuse_all("membarrier", libc::EPERM, Membarrier::heavy);
        assert_eq!(done, Err(Refused));
        assert!(refusals() > before);
        if register().is_ok() {
            assert_eq!(refuse(0, libc::EPERM, Membarrier::heavy).0, Ok(()), "registered again");
        }
    }
}

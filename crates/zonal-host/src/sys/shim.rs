//! A kernel that refuses the n-th call, and a ledger of what the calling thread has mapped.
//!
//! It acts only inside [`refuse`], and only on the thread that is in there; what other tests do
//! meanwhile goes to the kernel as it is.

use super::{Calls, Linux};
use crate::errno::Errno;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::ptr::NonNull;

/// See [`Kernel`](super::Kernel).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shim;

/// A call and the addresses that it was about.
pub(crate) type Call = (&'static str, Range<usize>);

/// What came of the calls.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// How many there were.
    pub(crate) calls: usize,
    /// The one that was refused.
    pub(crate) refused: Option<Call>,
    /// Addresses that are mapped for this thread, in order; neighbours are one.
    pub(crate) mapped: Vec<Range<usize>>,
    /// Calls about addresses that were not; they were not passed on.
    pub(crate) strangers: Vec<Call>,
}

impl Ledger {
    fn has(&self, part: &Range<usize>) -> bool {
        let overlap =
            |own: &Range<usize>| own.end.min(part.end).saturating_sub(own.start.max(part.start));
        self.mapped.iter().map(overlap).sum::<usize>() == part.len()
    }

    fn add(&mut self, part: Range<usize>) {
        self.remove(&part);
        self.mapped.push(part);
        self.mapped.sort_by_key(|own| own.start);
        self.mapped.dedup_by(|next, own| {
            let touches = own.end == next.start;
            own.end = if touches { next.end } else { own.end };
            touches
        });
    }

    fn remove(&mut self, part: &Range<usize>) {
        let left = |own: &Range<usize>| {
            [own.start..own.end.min(part.start), own.start.max(part.end)..own.end]
        };
        self.mapped = self.mapped.iter().flat_map(left).filter(|own| !own.is_empty()).collect();
    }
}

/// Which calls fail.
enum Which {
    /// The one with this number, from 0.
    Nth(usize),
    /// All with this name.
    All(&'static str),
}

struct Plan {
    refuse: Which,
    errno: Errno,
    ledger: Ledger,
}

thread_local! {
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
    static BINDS: Cell<bool> = const { Cell::new(true) };
}

/// Runs `f`, in which memory that is bound to a node is said to be, and is not: for nodes that are made up.
pub(crate) fn without_nodes<R>(f: impl FnOnce() -> R) -> R {
    BINDS.set(false);
    let done = f();
    BINDS.set(true);
    done
}

/// Runs `f`, in which the call with the number `at`, from 0, fails with `errno`; or, if that is 0,
/// is said to be done, and is not.
pub(crate) fn refuse<R>(at: usize, errno: i32, f: impl FnOnce() -> R) -> (R, Ledger) {
    run(Which::Nth(at), errno, f)
}

/// The same for every call of this name.
pub(crate) fn refuse_all<R>(name: &'static str, errno: i32, f: impl FnOnce() -> R) -> (R, Ledger) {
    run(Which::All(name), errno, f)
}

fn run<R>(refuse: Which, errno: i32, f: impl FnOnce() -> R) -> (R, Ledger) {
    PLAN.set(Some(Plan { refuse, errno: Errno::from(errno), ledger: Ledger::default() }));
    let done = f();
    (done, PLAN.take().expect("no plan inside a plan").ledger)
}

/// Runs `f` again and again, each time with the next call refused, and at the end with none.
/// Whatever `f` makes of it, it ends with nothing mapped, and has touched nothing that was not its
/// own. Returns the number of calls.
pub(crate) fn refuse_each(errno: i32, mut f: impl FnMut()) -> usize {
    for at in 0.. {
        let ((), ledger) = refuse(at, errno, &mut f);
        assert!(ledger.strangers.is_empty(), "call {at}: {ledger:x?}");
        // What the kernel refuses to unmap stays.
        let stays = ledger.refused.as_ref().filter(|(name, _)| *name == "munmap");
        let stays = stays.is_some_and(|(_, part)| ledger.mapped == [part.clone()]);
        assert!(ledger.mapped.is_empty() || stays, "call {at}: {ledger:x?}");
        if ledger.refused.is_none() {
            return ledger.calls;
        }
    }
    unreachable!("a range without an end")
}

/// Counts a call about `part`, of which the thread must have `own`. `Some`: it goes no further.
fn stop(name: &'static str, part: &Range<usize>, own: bool) -> Option<Errno> {
    PLAN.with_borrow_mut(|plan| {
        let plan = plan.as_mut()?;
        let ledger = &mut plan.ledger;
        ledger.calls += 1;
        if own && !ledger.has(part) {
            ledger.strangers.push((name, part.clone()));
            return Some(Errno::INVALID);
        }
        match plan.refuse {
            Which::Nth(at) if ledger.calls - 1 != at => return None,
            Which::All(refused) if refused != name => return None,
            _ => {}
        }
        ledger.refused = Some((name, part.clone()));
        Some(plan.errno)
    })
}

fn note(f: impl FnOnce(&mut Ledger)) {
    PLAN.with_borrow_mut(|plan| plan.as_mut().map(|plan| f(&mut plan.ledger)));
}

fn range(at: *mut u8, bytes: usize) -> Range<usize> {
    at.addr()..at.addr().saturating_add(bytes)
}

/// Asks first whether a call may go on.
fn ask<R>(
    name: &'static str,
    part: &Range<usize>,
    own: bool,
    call: impl FnOnce() -> Result<R, Errno>,
) -> Result<R, Errno> {
    stop(name, part, own).map_or_else(call, Err)
}

impl Calls for Shim {
    unsafe fn mmap(at: *mut u8, bytes: usize, prot: i32, flags: i32) -> Result<NonNull<u8>, Errno> {
        let (part, replaces) = (range(at, bytes), flags & libc::MAP_FIXED != 0);
        if let Some(errno) = stop("mmap", &part, replaces) {
            if replaces {
                // The kernel may have unmapped what was there before it finds that it cannot.
                // SAFETY: the caller's to replace, by contract.
                let gone = unsafe { Linux::munmap(at, bytes) };
                note(|ledger| gone.map_or((), |()| ledger.remove(&part)));
            }
            return Err(errno);
        }
        // SAFETY: the same contract.
        let got = unsafe { Linux::mmap(at, bytes, prot, flags) }?;
        note(|ledger| ledger.add(range(got.as_ptr(), bytes)));
        Ok(got)
    }

    unsafe fn munmap(at: *mut u8, bytes: usize) -> Result<(), Errno> {
        let part = range(at, bytes);
        // SAFETY: the same contract.
        ask("munmap", &part, true, || unsafe { Linux::munmap(at, bytes) })?;
        note(|ledger| ledger.remove(&part));
        Ok(())
    }

    unsafe fn mprotect(at: *mut u8, bytes: usize, prot: i32) -> Result<(), Errno> {
        // SAFETY: the same contract.
        ask("mprotect", &range(at, bytes), true, || unsafe { Linux::mprotect(at, bytes, prot) })
    }

    unsafe fn madvise(at: *mut u8, bytes: usize, advice: i32) -> Result<(), Errno> {
        // SAFETY: the same contract.
        ask("madvise", &range(at, bytes), true, || unsafe { Linux::madvise(at, bytes, advice) })
    }

    fn mincore(at: *mut u8, bytes: usize, map: &mut [u8]) -> Result<(), Errno> {
        let asked = ask("mincore", &range(at, bytes), true, || Linux::mincore(at, bytes, map));
        asked.or_else(|errno| {
            if errno.get() != 0 {
                return Err(errno);
            }
            // Said to be done: nothing is in memory, as if it were swapped out.
            map.fill(0);
            Ok(())
        })
    }

    fn mbind(at: *mut u8, bytes: usize, mode: i32, mask: &[u64]) -> Result<(), Errno> {
        let bind = || if BINDS.get() { Linux::mbind(at, bytes, mode, mask) } else { Ok(()) };
        ask("mbind", &range(at, bytes), true, bind)
    }

    fn membarrier(command: i32) -> Result<i32, Errno> {
        let asked = ask("membarrier", &(0..0), false, || Linux::membarrier(command));
        asked.or_else(|errno| if errno.get() == 0 { Ok(0) } else { Err(errno) })
    }

    fn get_affinity(set: &mut libc::cpu_set_t) -> Result<(), Errno> {
        ask("sched_getaffinity", &(0..0), false, || Linux::get_affinity(set))
    }

    fn set_affinity(set: &libc::cpu_set_t) -> Result<(), Errno> {
        ask("sched_setaffinity", &(0..0), false, || Linux::set_affinity(set))
    }
}

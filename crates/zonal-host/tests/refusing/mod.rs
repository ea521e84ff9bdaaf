//! System calls refused one at a time, whichever library makes them: a filter has the kernel ask a thread of
//! the test about each, which says no to one.

use libc::{c_int, c_long, c_ulong};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::thread;

/// `_IOWR('!', 0, struct seccomp_notif)` and `_IOWR('!', 1, struct seccomp_notif_resp)`, of Linux's ABI.
const RECEIVE: c_ulong = 0xc050_2100;
const SEND: c_ulong = 0xc018_2101;
/// Not known yet, and not to be had.
const UNKNOWN: c_int = -1;
const NONE: c_int = -2;

/// From now on the kernel asks about those calls of this thread, and of those that it starts, by what is
/// returned. `NONE` where it does not.
fn listen(calls: &[c_long]) -> c_int {
    let statement = |code: u32, k: u32, jt: usize| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: 0,
        k,
    };
    // The number of the call is the first word. Each that is meant jumps past all that follow.
    let jump = |(at, &call): (usize, &c_long)| {
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, calls.len() - at)
    };
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    program.extend(calls.iter().enumerate().map(jump));
    for end in [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF] {
        program.push(statement(libc::BPF_RET | libc::BPF_K, end, 0));
    }
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return NONE;
    }
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: the kernel copies the filter, which is as long as it says.
    let asked = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const filter) };
    if asked < 0 { NONE } else { asked as c_int }
}

/// Answers until no thread is left that the kernel would ask about; how many calls there were.
fn answer(asked: &OwnedFd, refused: &Range<usize>, errno: i32) -> usize {
    let mut calls = 0;
    loop {
        let mut poll = libc::pollfd { fd: asked.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, written during the call.
        unsafe { libc::poll(&raw mut poll, 1, -1) };
        if poll.revents & libc::POLLIN == 0 {
            if poll.revents & libc::POLLHUP != 0 {
                return calls;
            }
            continue;
        }
        // SAFETY: integers, for which zero is a value, and which the kernel wants to be zero.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: as large as the request says, and written during the call.
        if unsafe { libc::ioctl(asked.as_raw_fd(), RECEIVE, &raw mut call) } != 0 {
            // A signal, or the thread has gone.
            continue;
        }
        let goes_on = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let (error, flags) = if refused.contains(&calls) { (-errno, 0) } else { (0, goes_on) };
        let answer = libc::seccomp_notif_resp { id: call.id, val: 0, error, flags };
        calls += 1;
        // SAFETY: as large as the request says, and read during the call.
        unsafe { libc::ioctl(asked.as_raw_fd(), SEND, &raw const answer) };
    }
}

/// Runs `f` on a thread of its own; of the `calls` that it and the threads it starts make, those with the
/// numbers `refused`, from 0, fail with `errno`. What it returned, and how many calls there were, once all
/// these threads have ended. `None` if the kernel has no such filter for us: then `f` has not run.
pub(crate) fn refuse<R: Send>(
    calls: &[c_long],
    refused: &Range<usize>,
    errno: i32,
    f: impl FnOnce() -> R + Send,
) -> Option<(R, usize)> {
    // No channel: it might make calls that are asked about before there is an answer.
    let place = AtomicI32::new(UNKNOWN);
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            let asked = listen(calls);
            place.store(asked, SeqCst);
            (asked != NONE).then(f)
        });
        let asked = loop {
            match place.load(SeqCst) {
                UNKNOWN => thread::yield_now(),
                asked => break asked,
            }
        };
        let asked = (asked != NONE).then(|| {
            // SAFETY: the kernel made it for the thread above, which gave it to us.
            unsafe { OwnedFd::from_raw_fd(asked) }
        });
        let count = asked.map_or(0, |asked| answer(&asked, refused, errno));
        let done = runs.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        done.map(|done| (done, count))
    })
}

/// Runs `f` again and again, each time with the next call refused, and at the end with none. How many calls
/// there were then; `None` as [`refuse`] says, with a line that says so.
pub(crate) fn refuse_each<R: Send>(
    calls: &[c_long],
    errno: i32,
    f: impl Fn(usize) -> R + Send + Sync,
) -> Option<usize> {
    for at in 0.. {
        let Some((_, made)) = refuse(calls, &(at..at + 1), errno, || f(at)) else {
            println!("skipped: the kernel asks about no calls here");
            return None;
        };
        if made <= at {
            return Some(made);
        }
    }
    unreachable!("a range without an end")
}

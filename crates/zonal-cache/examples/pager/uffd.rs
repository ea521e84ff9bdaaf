//! The kernel's interface to page faults, as far as a pager and its clients use it (`linux/userfaultfd.h`).

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, Result, read};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};
use std::fmt;
use std::fs::{File, read_link};
use std::io;
use std::ops::Range;

const GROUP: u8 = 0xAA;
const NEW: Opcode = opcode::none(GROUP, 0);
const API: Opcode = opcode::read_write::<Api>(GROUP, 0x3F);
const REGISTER: Opcode = opcode::read_write::<Pages>(GROUP, 0);
const COPY: Opcode = opcode::read_write::<Copy>(GROUP, 3);
const ZERO: Opcode = opcode::read_write::<Pages>(GROUP, 4);
const POISON: Opcode = opcode::read_write::<Pages>(GROUP, 8);

const VERSION: u64 = 0xAA;
/// Memory that is given back by `madvise` is told of.
const EVENT_REMOVE: u64 = 1 << 3;
/// Faults of pages that are not there.
const MISSING: u64 = 1;
/// Only what the program itself touches, not what the kernel touches for it: that needs no right.
const USER_MODE_ONLY: u32 = 1;

const FAULT: u8 = 0x12;
const REMOVE: u8 = 0x15;

#[repr(C)]
struct Api {
    version: u64,
    features: u64,
    ioctls: u64,
}

/// What `REGISTER`, `ZERO` and `POISON` take.
#[repr(C)]
struct Pages {
    start: u64,
    len: u64,
    mode: u64,
    done: i64,
}

#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

/// The kernel gives this process no `userfaultfd`.
#[derive(Debug)]
pub(crate) struct Unavailable(pub(crate) Errno);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel gives no userfaultfd, by the device nor by the call: {}", self.0)
    }
}

impl std::error::Error for Unavailable {}

/// What a process does to its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A page is not there, and a thread waits for it.
    Fault(u64),
    /// Pages were given back: they are zero when they are touched again.
    Removed(Range<u64>),
    /// One that was not asked for.
    Other(u8),
}

/// Page faults of one process, the one that has made it: whichever process has the descriptor answers.
#[derive(Debug)]
pub(crate) struct Uffd(OwnedFd);

impl Uffd {
    /// Faults of this process.
    pub(crate) fn new() -> std::result::Result<Self, Unavailable> {
        let made = device().or_else(|_| by_call()).map_err(Unavailable)?;
        let mut api = Api { version: VERSION, features: EVENT_REMOVE, ioctls: 0 };
        call::<API, _>(&made, &mut api).map_err(Unavailable)?;
        Ok(Self(made))
    }

    /// Faults of another process, which has sent the descriptor; `None` if it is one of something else.
    pub(crate) fn received(fd: OwnedFd) -> io::Result<Option<Self>> {
        let name = read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        if name.to_str() != Some("anon_inode:[userfaultfd]") {
            return Ok(None);
        }
        // The sender may have made it so that reads wait; one that does cannot be polled.
        fcntl_setfl(&fd, OFlags::NONBLOCK)?;
        Ok(Some(Self(fd)))
    }

    /// From now on pages of this memory, which is its process's and has none yet, are asked for here.
    pub(crate) fn register(&self, start: u64, len: u64) -> Result<()> {
        call::<REGISTER, _>(&self.0, &mut Pages { start, len, mode: MISSING, done: 0 })
    }

    /// What has happened, without waiting for it.
    pub(crate) fn next(&self) -> Result<Option<Event>> {
        let mut message = [0; 32];
        match read(&self.0, &mut message) {
            Err(Errno::AGAIN) => return Ok(None),
            other => other?,
        };
        let [first, second] =
            [8, 16].map(|at| u64::from_ne_bytes(std::array::from_fn(|byte| message[at + byte])));
        Ok(Some(match message[0] {
            // The first are its flags.
            FAULT => Event::Fault(second),
            REMOVE => Event::Removed(first..second),
            other => Event::Other(other),
        }))
    }

    /// Fills pages at `to`, and wakes those that wait for them. How many bytes, if a later page is there already.
    ///
    /// # Errors
    /// `EXIST` if the first page is there already, `AGAIN` if an [`Event::Removed`] is to be taken first, `SRCH` if the
    /// process is gone, `NOENT` if it has no such memory, or has not registered it.
    pub(crate) fn copy(&self, to: u64, from: &[u8]) -> Result<usize> {
        let (at, len) = (from.as_ptr().addr() as u64, from.len() as u64);
        let mut copy = Copy { to, from: at, len, mode: 0, copied: 0 };
        match call::<COPY, _>(&self.0, &mut copy) {
            Ok(()) => Ok(from.len()),
            Err(Errno::AGAIN) if copy.copied > 0 => Ok(copy.copied as usize),
            Err(error) => Err(error),
        }
    }

    /// Fills pages with zeros; as [`copy`](Self::copy).
    pub(crate) fn zero(&self, start: u64, len: u64) -> Result<()> {
        call::<ZERO, _>(&self.0, &mut Pages { start, len, mode: 0, done: 0 })
    }

    /// Makes pages such that who touches them gets `SIGBUS`, as of memory that is broken; as [`copy`](Self::copy).
    ///
    /// # Errors
    /// `INVAL` also if the kernel is older than Linux 6.6.
    pub(crate) fn poison(&self, start: u64, len: u64) -> Result<()> {
        call::<POISON, _>(&self.0, &mut Pages { start, len, mode: 0, done: 0 })
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One of the kernel's calls on a userfaultfd; `argument` is what it takes.
fn call<const NUMBER: Opcode, T>(fd: &OwnedFd, argument: &mut T) -> Result<()> {
    // SAFETY: each number above says the size of the structure that it is called with, which is as in the kernel's header.
    let call = unsafe { Updater::<NUMBER, T>::new(argument) };
    // SAFETY: `fd` is a userfaultfd, and of this process the calls read and write `argument` only, and read what a `Copy` says, which
    // is borrowed for as long. In the process that made `fd` they fill pages that it registered and that are not there.
    unsafe { ioctl(fd, call) }
}

/// By the device: its permissions are those of a file.
fn device() -> Result<OwnedFd> {
    let last = |error: &io::Error| Errno::from_io_error(error).unwrap_or(Errno::IO);
    let device = File::open("/dev/userfaultfd").map_err(|error| last(&error))?;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the call takes flags, not an address.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), NEW.into(), flags) };
    if fd < 0 {
        return Err(last(&io::Error::last_os_error()));
    }
    // SAFETY: just made, and no other has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// By the system call, which needs `CAP_SYS_PTRACE` or a `sysctl` but for what programs touch themselves.
fn by_call() -> Result<OwnedFd> {
    let all = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    let less = all | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
    let mut last = Errno::NOSYS;
    for flags in [all, less] {
        // SAFETY: it changes no memory until some is registered, which then waits for its pages and is not otherwise than before.
        match unsafe { userfaultfd(flags) } {
            Err(error) => last = error,
            made => return made,
        }
    }
    Err(last)
}

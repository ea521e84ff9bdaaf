//! The pager: it answers the page faults of its clients with pages of one cache.

use crate::handover::{HandoverError, PAGE, Region, receive, send};
use crate::uffd::{Event, Uffd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SocketFlags, accept_with, sockopt::socket_peercred};
use std::collections::VecDeque;
use std::fmt;
use std::thread;
use zonal_cache::threads::OnThreads;
use zonal_cache::{CacheError, CacheFile, Pinned, S3Fifo};

const SIZE: usize = PAGE as usize;

/// Why a client is not served any more, though it is there.
#[derive(Debug)]
pub(crate) enum ServeError {
    /// What it handed over is no memory that can be filled.
    Handover(HandoverError),
    /// It was to be told of a fault at an address that it has not handed over.
    Elsewhere(u64),
    /// Something happened that this pager knows nothing of, by the kernel's number.
    Event(u8),
    /// This byte of the snapshot cannot be had.
    Unreadable(u64, CacheError),
    /// The kernel refused a call.
    Kernel(Errno),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handover(error) => error.fmt(f),
            Self::Elsewhere(address) => write!(f, "a fault at {address:#x}, which is no region"),
            Self::Event(number) => write!(f, "event {number:#x} is not one that is served"),
            Self::Unreadable(offset, error) => write!(f, "byte {offset} of the snapshot: {error}"),
            Self::Kernel(error) => write!(f, "the kernel refuses: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<Errno> for ServeError {
    fn from(error: Errno) -> Self {
        Self::Kernel(error)
    }
}

/// What became of a client.
#[derive(Debug)]
pub(crate) struct Report {
    /// Its process.
    pub(crate) client: i32,
    /// Faults that were answered.
    pub(crate) faults: usize,
    /// Pages that were filled from the cache.
    pub(crate) filled: usize,
    /// Offsets of pages that could not be read, and why. Who touched them got `SIGBUS`.
    pub(crate) poisoned: Vec<(u64, CacheError)>,
    /// Whether it was served until its end.
    pub(crate) end: Result<(), ServeError>,
}

/// A snapshot in a cache, for any number of clients.
#[derive(Clone, Copy)]
pub(crate) struct Pager<'a> {
    pub(crate) file: &'a CacheFile<S3Fifo>,
    /// Bytes that a fault brings, a power of two.
    pub(crate) step: u64,
    /// Whether a page that cannot be read is made one that is broken, and the client goes on without it. If not, and where
    /// the kernel cannot do so (before Linux 6.6), its client is not served any more.
    pub(crate) poison: bool,
}

impl Pager<'_> {
    /// Serves that many clients, each on a thread of its own, until they end.
    pub(crate) fn serve(&self, listener: &OwnedFd, clients: usize) -> Result<Vec<Report>, Errno> {
        thread::scope(|scope| {
            let serving = (0..clients).map(|_| {
                let socket = retry_on_intr(|| accept_with(listener, SocketFlags::CLOEXEC))?;
                Ok(scope.spawn(move || self.client(&socket)))
            });
            let serving: Result<Vec<_>, Errno> = serving.collect();
            Ok(serving?.into_iter().map(|it| it.join().expect("it does not panic")).collect())
        })
    }

    fn client(&self, socket: &OwnedFd) -> Report {
        let client = socket_peercred(socket).map_or(0, |it| it.pid.as_raw_pid());
        let poisoned = Vec::new();
        let mut report = Report { client, faults: 0, filled: 0, poisoned, end: Ok(()) };
        report.end = receive(socket, self.file.len()).map_err(ServeError::Handover).and_then(
            |(faults, regions)| {
                let removed =
                    regions.iter().map(|it| vec![false; (it.len / PAGE) as usize]).collect();
                let report = &mut report;
                Client { pager: self, faults, regions, removed, report }.serve(socket)
            },
        );
        if let Err(error) = &report.end {
            // It never reads bytes that are none of its own: its threads wait on, and it ends by this message. If this does not reach it
            // either it has gone.
            let _ = send(socket, error.to_string().as_bytes(), &[]);
        }
        report
    }
}

/// A client that is served.
struct Client<'a> {
    pager: &'a Pager<'a>,
    faults: Uffd,
    regions: Vec<Region>,
    /// Pages of each region that it has given back: they are zero from then on.
    removed: Vec<Vec<bool>>,
    report: &'a mut Report,
}

impl Client<'_> {
    /// Until it ends, by itself or by a signal.
    fn serve(mut self, socket: &OwnedFd) -> Result<(), ServeError> {
        let mut waiting = VecDeque::new();
        loop {
            while let Some(event) = self.faults.next()? {
                match event {
                    Event::Fault(address) => waiting.push_back(address),
                    Event::Removed(range) => self.remove(range.start, range.end),
                    Event::Other(number) => return Err(ServeError::Event(number)),
                }
            }
            let Some(address) = waiting.pop_front() else {
                let mut ready =
                    [PollFd::new(&self.faults, PollFlags::IN), PollFd::new(socket, PollFlags::IN)];
                retry_on_intr(|| poll(&mut ready, None))?;
                // A client says no more: its end is all that comes.
                if !ready[1].revents().is_empty() {
                    return Ok(());
                }
                continue;
            };
            match self.answer(address) {
                Ok(()) => self.report.faults += 1,
                // It gives memory back at this moment, and that comes first.
                Err(ServeError::Kernel(Errno::AGAIN)) => {
                    waiting.push_front(address);
                    thread::yield_now();
                }
                // The process is gone, and so is its memory.
                Err(ServeError::Kernel(Errno::SRCH)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn remove(&mut self, start: u64, end: u64) {
        for (region, removed) in self.regions.iter().zip(&mut self.removed) {
            let page = |address: u64| (address.max(region.address) - region.address) / PAGE;
            let (from, upto) = (page(start) as usize, page(end) as usize);
            let upto = upto.min(removed.len());
            removed[from.min(upto)..upto].fill(true);
        }
    }

    /// Brings the page at `address`, and the step that it is in.
    fn answer(&mut self, address: u64) -> Result<(), ServeError> {
        let within =
            |region: &Region| (region.address..region.address + region.len).contains(&address);
        let number = self.regions.iter().position(within).ok_or(ServeError::Elsewhere(address))?;
        let region = self.regions[number];
        let page = (address - region.address) / PAGE;
        let to = region.address + page * PAGE;
        if self.removed[number][page as usize] {
            return Ok(settled(self.faults.zero(to, PAGE))?);
        }
        let (offset, step) = (region.offset + page * PAGE, self.pager.step);
        let from = (offset - offset % step).max(region.offset);
        let upto = (offset - offset % step + step).min(region.offset + region.len);
        // One page of the step may be unreadable, and another one be asked for.
        let file = self.pager.file;
        let pinned = file.pin(from..upto).map(|pinned| (from, pinned));
        match pinned.or_else(|_| file.pin(offset..offset + PAGE).map(|pinned| (offset, pinned))) {
            Ok((from, pinned)) => self.fill(number, from, &pinned),
            Err(error @ CacheError::Store(_)) if self.pager.poison => {
                match self.faults.poison(to, PAGE) {
                    Ok(()) => self.report.poisoned.push((offset, error)),
                    Err(Errno::INVAL) => return Err(ServeError::Unreadable(offset, error)),
                    done => settled(done)?,
                }
                Ok(())
            }
            Err(error) => Err(ServeError::Unreadable(offset, error)),
        }
    }

    /// Without a copy of its own: from the cache's pages into the client's.
    fn fill(
        &mut self,
        number: usize,
        from: u64,
        pinned: &Pinned<'_, OnThreads<S3Fifo>>,
    ) -> Result<(), ServeError> {
        let (region, removed) = (self.regions[number], &self.removed[number]);
        let (mut at, mut most) = (from - region.offset, usize::MAX);
        for mut piece in pinned.pieces() {
            while !piece.is_empty() {
                let pages = removed[(at / PAGE) as usize..].iter().take(piece.len() / SIZE);
                let len = pages.take_while(|removed| !**removed).count() * SIZE;
                let done = match len.min(most) {
                    0 => Err(Errno::EXIST),
                    len => self.faults.copy(region.address + at, &piece[..len]),
                };
                let over = match done {
                    Ok(done) => {
                        self.report.filled += done / SIZE;
                        done
                    }
                    // Some of it is not there any more, which the kernel says of all.
                    Err(Errno::NOENT) if len.min(most) > SIZE => {
                        most = SIZE;
                        continue;
                    }
                    done => settled(done.map(drop)).map(|()| SIZE)?,
                };
                piece = &piece[over..];
                at += over as u64;
            }
        }
        Ok(())
    }
}

/// A page that was given back, or came by another fault of the same step, needs nothing; nor one that the client has
/// unmapped.
fn settled(done: Result<(), Errno>) -> Result<(), Errno> {
    if matches!(done, Err(Errno::EXIST | Errno::NOENT)) { Ok(()) } else { done }
}

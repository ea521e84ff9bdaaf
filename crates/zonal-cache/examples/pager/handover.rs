//! How a client hands its memory over: one message on a Unix socket, with the descriptor of its page faults beside it
//! (`SCM_RIGHTS`). Firecracker does so with the same three numbers for each region, as JSON.
//!
//! The socket stays open for as long as the client lives. That it closes is how the pager learns of the client's end, which a
//! userfaultfd does not tell; what comes back by it is why the client's memory will not be filled.

use crate::uffd::Uffd;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{self, Errno, IoSlice, IoSliceMut, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};
use std::fmt;
use std::mem::MaybeUninit;
use std::path::Path;

pub(crate) const PAGE: u64 = 4096;
/// Regions that a client has at most.
pub(crate) const REGIONS: usize = 8;
/// Bytes of a region in the message: three numbers, as the machine has them.
pub(crate) const REGION: usize = 24;

/// Memory of a client, and what part of the snapshot it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    /// Where it is in the client.
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// Of its first byte in the snapshot.
    pub(crate) offset: u64,
}

impl Region {
    pub(crate) fn bytes(self) -> [u8; REGION] {
        let numbers = [self.address, self.len, self.offset].map(u64::to_ne_bytes);
        std::array::from_fn(|at| numbers[at / 8][at % 8])
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let number =
            |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        Self { address: number(0), len: number(1), offset: number(2) }
    }

    /// Whether it is whole pages, one at least, and ends where there can be memory.
    fn is_paged(self) -> bool {
        let numbers = [self.address, self.len, self.offset];
        numbers.iter().all(|number| number % PAGE == 0)
            && self.len > 0
            && self.address.checked_add(self.len).is_some()
    }

    /// Whether the snapshot has it all.
    fn is_within(self, snapshot: u64) -> bool {
        self.offset.checked_add(self.len).is_some_and(|end| end <= snapshot)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, len, offset } = self;
        write!(f, "{len} bytes of memory at {address:#x}, from byte {offset} of the snapshot on")
    }
}

/// Why a client is not served.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum HandoverError {
    /// Nothing came.
    Socket(Errno),
    /// The message has this many bytes, which are not some regions.
    Length(usize),
    /// There is not one descriptor but this many.
    Descriptors(usize),
    /// The descriptor is of something else.
    NotUserfaultfd,
    /// Not whole pages.
    NotPages(Region),
    /// It ends behind the snapshot.
    Beyond {
        /// What was asked for.
        region: Region,
        /// Bytes that there are.
        snapshot: u64,
    },
}

impl fmt::Display for HandoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(error) => write!(f, "no hand-over: {error}"),
            Self::Length(0) => f.write_str("the client went before it handed memory over"),
            Self::Length(bytes) => write!(
                f,
                "a hand-over of {bytes} bytes: it is to be 1 to {REGIONS} regions of {REGION} bytes"
            ),
            Self::Descriptors(count) => {
                write!(f, "a hand-over with {count} descriptors: it is to have one")
            }
            Self::NotUserfaultfd => f.write_str("the descriptor handed over is no userfaultfd"),
            Self::NotPages(region) => write!(f, "{region}: not whole pages"),
            Self::Beyond { region, snapshot } => {
                write!(f, "{region}: that has {snapshot} bytes only")
            }
        }
    }
}

impl std::error::Error for HandoverError {}

impl From<Errno> for HandoverError {
    fn from(error: Errno) -> Self {
        Self::Socket(error)
    }
}

/// Messages come whole or not at all.
fn socket() -> io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Where clients come to.
pub(crate) fn listener(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 16)?;
    Ok(socket)
}

/// A client's way to the pager.
pub(crate) fn connected(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// One message with descriptors beside it.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG);
    }
    let bytes = [IoSlice::new(bytes)];
    retry_on_intr(|| sendmsg(&socket, &bytes, &mut beside, SendFlags::NOSIGNAL)).map(drop)
}

/// Hands memory over to the pager.
pub(crate) fn hand_over(socket: impl AsFd, faults: &Uffd, regions: &[Region]) -> io::Result<()> {
    let bytes: Vec<u8> = regions.iter().flat_map(|region| region.bytes()).collect();
    send(socket, &bytes, &[faults.as_fd()])
}

/// Waits for what the pager has to say, which is why it ends; an empty text if it has gone.
pub(crate) fn last_words(socket: impl AsFd) -> io::Result<String> {
    let mut text = [0; 512];
    let len = retry_on_intr(|| rustix::io::read(&socket, &mut text))?;
    Ok(String::from_utf8_lossy(&text[..len]).into_owned())
}

/// Waits for the memory of a client. Nothing that it sends is believed: its numbers are looked at, and its descriptor.
pub(crate) fn receive(
    socket: impl AsFd,
    snapshot: u64,
) -> Result<(Uffd, Vec<Region>), HandoverError> {
    let mut bytes = [0; REGIONS * REGION];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let came = retry_on_intr(|| {
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
        recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags)
    })?;
    // All that came are closed where it is not served.
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    // By `TRUNC` also bytes for which there was no place.
    let len = came.bytes;
    if len == 0 || len > bytes.len() || len % REGION != 0 {
        return Err(HandoverError::Length(len));
    }
    let regions: Vec<_> = bytes[..len].chunks_exact(REGION).map(Region::from_bytes).collect();
    let count = fds.len();
    let (Some(fd), 1) = (fds.pop(), count) else { return Err(HandoverError::Descriptors(count)) };
    let faults = Uffd::received(fd).map_err(|error| {
        HandoverError::Socket(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })?;
    let faults = faults.ok_or(HandoverError::NotUserfaultfd)?;
    if let Some(&region) = regions.iter().find(|region| !region.is_paged()) {
        return Err(HandoverError::NotPages(region));
    }
    match regions.iter().find(|region| !region.is_within(snapshot)) {
        Some(&region) => Err(HandoverError::Beyond { region, snapshot }),
        None => Ok((faults, regions)),
    }
}

//! A pager: memory of processes, or of guests, that is filled from a snapshot file when it is first
//! touched, by `userfaultfd`. Two clients map the same snapshot; what one has touched is in the cache
//! for the other, so the file is read once. A fault brings 4 KiB or 2 MiB.
//!
//! ```text
//! cargo run --release -p zonal-cache --example pager
//! ```
//! It needs `/dev/userfaultfd`, or the right to the system call.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::error::Error;
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};
use zonal_cache::faulty_store::Operation;
use zonal_cache::store::StoreError;
use zonal_cache::{Advice, Cache, CacheFile, FaultyStore, FileStore, Ring, S3Fifo};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of the snapshot.
const LEN: usize = 64 << 20;

/// The kernel's interface: numbers of calls, and what they take (`linux/userfaultfd.h`).
mod uffd {
    pub(super) const NEW: u64 = 0xAA00;
    pub(super) const API: u64 = 0xC018_AA3F;
    pub(super) const REGISTER: u64 = 0xC020_AA00;
    pub(super) const UNREGISTER: u64 = 0x8010_AA01;
    pub(super) const COPY: u64 = 0xC028_AA03;
    pub(super) const VERSION: u64 = 0xAA;
    pub(super) const MISSING: u64 = 1;
    pub(super) const FAULT: u8 = 0x12;

    #[repr(C)]
    pub(super) struct Api {
        pub(super) version: u64,
        pub(super) features: u64,
        pub(super) ioctls: u64,
    }
    #[repr(C)]
    pub(super) struct Register {
        pub(super) start: u64,
        pub(super) len: u64,
        pub(super) mode: u64,
        pub(super) ioctls: u64,
    }
    #[repr(C)]
    pub(super) struct Range {
        pub(super) start: u64,
        pub(super) len: u64,
    }
    #[repr(C)]
    pub(super) struct Copy {
        pub(super) to: u64,
        pub(super) from: u64,
        pub(super) len: u64,
        pub(super) mode: u64,
        pub(super) copied: i64,
    }
}

/// One of the kernel's calls; `argument` is what it takes.
fn call<T>(fd: &impl AsRawFd, number: u64, argument: &mut T) -> io::Result<()> {
    // SAFETY: each number above is called with the structure that the kernel says.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), number, ptr::from_mut(argument)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn open() -> io::Result<File> {
    let device = File::open("/dev/userfaultfd")?;
    // SAFETY: the call takes flags.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), uffd::NEW, libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and no other has it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    call(&file, uffd::API, &mut uffd::Api { version: uffd::VERSION, features: 0, ioctls: 0 })?;
    Ok(file)
}

/// Memory that is not there until it is touched.
struct Memory(*mut c_void);

impl Memory {
    fn new(faults: &File) -> Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), LEN, access, MapFlags::PRIVATE) }?;
        let (start, len) = (at.addr() as u64, LEN as u64);
        let mut range = uffd::Register { start, len, mode: uffd::MISSING, ioctls: 0 };
        call(faults, uffd::REGISTER, &mut range)?;
        Ok(Self(at))
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped, and filled by the pager before a read of it ends. Only the kernel writes.
        unsafe { std::slice::from_raw_parts(self.0.cast(), LEN) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        let _ = unsafe { munmap(self.0, LEN) };
    }
}

/// While this lives a pager answers. When it goes, all memory is let go, so that a client whose pager
/// failed reads zeros and goes on, and does not wait for ever.
struct Answering<'a> {
    faults: &'a File,
    start: usize,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let mut range = uffd::Range { start: self.start as u64, len: LEN as u64 };
        if let Err(error) = call(self.faults, uffd::UNREGISTER, &mut range) {
            eprintln!("memory could not be let go: {error}");
        }
    }
}

/// Answers the faults of one client, `step` bytes each, until it has all; how many there were.
fn serve(faults: &File, start: usize, file: &CacheFile<S3Fifo>, step: usize) -> Result<usize> {
    let _answering = Answering { faults, start };
    let (mut count, mut missing, mut message) = (0, LEN, [0; 32]);
    while missing > 0 {
        (&*faults).read_exact(&mut message)?;
        if message[0] != uffd::FAULT {
            continue;
        }
        count += 1;
        let address = usize::from_ne_bytes(message[16..24].try_into()?);
        let offset = (address - start) & !(step - 1);
        // Without a copy of its own: from the cache's pages into the client's.
        let pinned = file.pin(offset as u64..(offset + step) as u64)?;
        let mut to = start + offset;
        for piece in pinned.pieces() {
            let (from, len) = (piece.as_ptr().addr() as u64, piece.len() as u64);
            let mut copy = uffd::Copy { to: to as u64, from, len, mode: 0, copied: 0 };
            match call(faults, uffd::COPY, &mut copy) {
                Ok(()) => missing -= piece.len(),
                // It came by another fault of the same step.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
            to += piece.len();
        }
    }
    Ok(count)
}

/// Has a client touch all of its memory, page by page, and compare; how long that took, and its faults.
fn client(file: &CacheFile<S3Fifo>, all: &[u8], step: usize) -> Result<(Duration, usize)> {
    let faults = open()?;
    let memory = Memory::new(&faults)?;
    let start = memory.0.addr();
    thread::scope(|scope| {
        let pager = scope.spawn(|| serve(&faults, start, file, step).map_err(|it| it.to_string()));
        let begin = Instant::now();
        // Here and there, as a guest does. All of it, also after a page that is wrong: the pager waits
        // until there is no more to answer.
        let mut wrong = None;
        for page in 0..LEN / 4096 {
            let at = (page * 7919 % (LEN / 4096)) * 4096;
            if memory.bytes()[at..at + 4096] != all[at..at + 4096] {
                wrong = wrong.or(Some(at));
            }
        }
        let took = begin.elapsed();
        let count = pager.join().map_err(|_| "the pager panicked")??;
        wrong.map_or(Ok((took, count)), |at| Err(format!("byte {at} is another").into()))
    })
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir_in(".")?;
    let path = directory.path().join("snapshot");
    let all: Vec<u8> = (0..LEN).map(|at| (at / 3) as u8 ^ (at >> 12) as u8).collect();
    std::fs::write(&path, &all)?;
    File::open(&path)?.sync_all()?;
    println!(
        "{} MiB of a snapshot; us a page, by the first client, a second, and two at once",
        LEN >> 20
    );
    for (name, step) in [("4 KiB", 4096), ("2 MiB", 2 << 20)] {
        let cache = Cache::<S3Fifo>::builder().memory(80 << 20).open()?;
        let store = FileStore::open(&path)?.with_ring(Ring::new(64).ok());
        let file = cache.open(store)?;
        file.advise(if step == 4096 { Advice::Random } else { Advice::Sequential });
        let (first, faults) = client(&file, &all, step)?;
        let (second, _) = client(&file.clone(), &all, step)?;
        let begin = Instant::now();
        thread::scope(|scope| {
            let both = [0, 1].map(|_| {
                let (file, all) = (file.clone(), &all);
                scope.spawn(move || client(&file, all, step).map_err(|it| it.to_string()))
            });
            both.into_iter().try_for_each(|it| it.join().expect("a client").map(drop))
        })?;
        let us = |time: Duration| time.as_secs_f64() * 1e6 / (LEN / 4096) as f64;
        let two = us(begin.elapsed()) / 2.0;
        println!("{name}: {:.1} {:.1} {two:.1}; {faults} faults", us(first), us(second));
        assert_eq!(cache.stats().read, LEN as u64 / 4096, "each page was read once");
    }
    let cache = Cache::<S3Fifo>::builder().memory(80 << 20).open()?;
    let bad = |operation| matches!(operation, Operation::Read { offset, .. } if offset >= 1 << 20);
    let store = FaultyStore::new(FileStore::open(&path)?, move |operation| {
        bad(operation).then_some(StoreError::IO)
    });
    match client(&cache.open(store)?, &all, 4096) {
        Ok(_) => Err("a snapshot that cannot be read was".into()),
        Err(error) => {
            println!("a snapshot that cannot be read ends its client: {error}");
            Ok(())
        }
    }
}

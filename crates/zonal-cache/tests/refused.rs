//! Every system call that is about files, rings or threads refused in turn, whichever library makes it: what
//! can be tried again succeeds then, no byte of the file is other than it should be, and no thread panics or
//! waits for ever.
#![cfg(all(feature = "std", not(loom), not(shuttle)))]

#[expect(dead_code, reason = "shared by several tests")]
#[path = "../../zonal-host/tests/refusing/mod.rs"]
mod refusing;

use refusing::refuse;
use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::time::Duration;
use zonal_cache::{Advice, Cache, FileStore, Ring, S3Fifo};

const PAGE: usize = 4096;
const PAGES: usize = 40;
const LEFT: usize = 38 * PAGE;

/// Of the memory there is only what the arena asks for, whose calls are refused in `zonal-host`.
const CALLS: [i64; 13] = [
    libc::SYS_openat,
    libc::SYS_lseek,
    libc::SYS_preadv,
    libc::SYS_pread64,
    libc::SYS_pwritev,
    libc::SYS_pwrite64,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_enter,
    libc::SYS_clone3,
];

fn bytes() -> Vec<u8> {
    (0..PAGES * PAGE + 123).map(|at| (at / 7) as u8 ^ (at >> 12) as u8).collect()
}

/// As often as one refusal can make several calls of the cache fail: a page that was read ahead, and a
/// handle that has not been told yet.
fn again<R, E: Debug>(what: &str, mut call: impl FnMut() -> Result<R, E>) -> R {
    let mut last = None;
    for _ in 0..4 {
        match call() {
            Ok(done) => return done,
            Err(error) => last = Some(error),
        }
    }
    panic!("{what}: {last:?}");
}

/// Whether what is read ahead is on a ring.
#[derive(Clone, Copy, PartialEq)]
enum Ringed {
    No,
    Yes,
    Registered,
}

/// Reads, writes, zeroes and cuts a file. Whether there was a cache and a file to do it with.
fn life(path: &Path, ringed: Ringed) -> bool {
    let builder = Cache::<S3Fifo>::builder().memory(16 * PAGE).io_threads(1);
    let Ok(cache) = builder.write_behind(Duration::from_secs(3600)).open() else { return false };
    let ring = match ringed {
        Ringed::No => None,
        Ringed::Yes => Ring::new(4).ok(),
        Ringed::Registered => Ring::with_buffers(4, cache.frames().arena()).ok(),
    };
    let Ok(store) = FileStore::open(path) else { return false };
    let Ok(file) = cache.open(store.with_ring(ring)) else { return false };
    let all = bytes();
    file.advise(Advice::Sequential);
    let mut page = vec![0; PAGE];
    for at in (0..all.len()).step_by(PAGE) {
        let got = again("read", || file.read_at(&mut page, at as u64));
        assert!(page[..got] == all[at..at + got], "at {at}");
    }
    again("write", || file.write_at(&[1; 4 * PAGE], 3 * PAGE as u64));
    again("a part", || file.write_at(&[2; 100], 30 * PAGE as u64 + 50));
    again("sync", || file.sync());
    let zeroed = 8 * PAGE as u64..9 * PAGE as u64;
    again("zero", || file.zero_range(zeroed.clone()));
    again("truncate", || file.truncate(LEFT as u64));
    again("sync", || file.sync());
    assert!(cache.stats().used <= 16 && cache.stats().dirty == 0, "{:?}", cache.stats());
    true
}

/// What the file holds after that.
fn after() -> Vec<u8> {
    let mut all = bytes();
    all[3 * PAGE..7 * PAGE].fill(1);
    all[30 * PAGE + 50..][..100].fill(2);
    all[8 * PAGE..9 * PAGE].fill(0);
    all.truncate(LEFT);
    all
}

fn each(ringed: Ringed) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    for errno in [libc::EIO, libc::EINTR, libc::ENOMEM] {
        let mut lived = 0;
        for at in 0.. {
            fs::write(&path, bytes()).unwrap();
            let done = refuse(&CALLS, &(at..at + 1), errno, || life(&path, ringed));
            let Some((done, made)) = done else {
                return println!("skipped: the kernel asks about no calls here");
            };
            let now = fs::read(&path).unwrap();
            let whole = now == if done { after() } else { bytes() };
            assert!(whole, "call {at} refused with {errno}: the file is not what was written");
            lived += usize::from(done);
            if made <= at {
                println!("errno {errno}: {made} calls, all done {lived} times");
                assert!(done && made > 30 && 2 * lived > made, "{made} calls, {lived}");
                break;
            }
        }
    }
}

#[test]
fn every_call_in_turn() {
    each(Ringed::No);
}

#[test]
fn every_call_in_turn_with_a_ring() {
    each(Ringed::Yes);
}

/// Buffers that the kernel refuses are none, and the ring is as one without.
#[test]
fn every_call_in_turn_with_buffers() {
    each(Ringed::Registered);
}

/// From some call on for ever: what is on its way ends, and the rest is read without a ring.
#[test]
fn a_ring_that_the_kernel_takes_nothing_from() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    for (first, errno) in [(0, libc::EAGAIN), (0, libc::EINTR), (1, libc::EBUSY), (3, libc::EIO)] {
        fs::write(&path, bytes()).unwrap();
        let all = first..usize::MAX;
        let done = refuse(&[libc::SYS_io_uring_enter], &all, errno, || life(&path, Ringed::Yes));
        let Some((done, made)) = done else {
            return println!("skipped: the kernel asks about no calls here");
        };
        assert!(done && fs::read(&path).unwrap() == after(), "from {first} on {errno}");
        if Ring::new(4).is_ok() {
            assert!(made > first + 100, "{made} calls");
        }
    }
}

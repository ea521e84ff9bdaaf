//! Registered buffers, by a real ring where the kernel offers one.
#![cfg(all(feature = "io-uring", not(loom)))]

mod refusing;

use io_uring::types::Fd;
use io_uring::{IoUring, squeue};
use refusing::refuse_each;
use std::fs::{self, OpenOptions};
use std::ops::IndexMut;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use zonal::{Order, Request, ZoneId};
use zonal_host::fixed_pages::{FixedPages, PageIndex};
use zonal_host::region::GiveBack;
use zonal_host::{Arena, OwnedPage};

fn open() -> Arc<Arena> {
    Arc::new(Arena::builder().bytes(16 << 20).cpus(1).owners(0).open().unwrap())
}

/// Pages of several orders, with their numbers in them.
fn pages(arena: &Arc<Arena>) -> FixedPages {
    let page = |order| {
        let mut page = arena.alloc_owned(&Request::new(Order::new(order).unwrap())).unwrap();
        page.fill(order);
        page
    };
    FixedPages::new([0, 3, 9].map(page))
}

/// Runs one operation; what it returned.
fn run(ring: &mut IoUring, operation: &squeue::Entry) -> i32 {
    // SAFETY: the test's pages and files outlive the operation, which is waited for.
    unsafe { ring.submission().push(operation) }.unwrap();
    ring.submit_and_wait(1).unwrap();
    ring.completion().next().unwrap().result()
}

#[test]
fn what_the_kernel_is_told() {
    let arena = open();
    let mut pages = pages(&arena);
    let iovecs = pages.iovecs();
    assert_eq!((pages.len(), pages.is_empty(), iovecs.len()), (3, false, 3));
    for (index, iovec) in (0..).zip(&iovecs) {
        assert_eq!(iovec.iov_base.cast_const().cast(), pages[index].as_ptr());
        assert_eq!(iovec.iov_len, pages[index].len());
    }
    assert!(pages.read(2, Fd(0)).is_some() && pages.read(3, Fd(0)).is_none());
    assert!(pages.write(0, 4096, Fd(0)).is_some());
    assert!(pages.write(0, 4097, Fd(0)).is_none() && pages.write(3, 0, Fd(0)).is_none());
    assert_eq!(pages.into_pages().len(), 3);
}

/// What an index gives has no size, so it can be neither replaced nor swapped: that a page could be is what
/// the documentation of the type shows not to compile.
#[test]
fn bytes_change_and_pages_stay() {
    fn bytes<T: IndexMut<PageIndex, Output = [u8]>>(pages: &mut T) -> &mut [u8] {
        &mut pages[1]
    }
    let arena = open();
    let mut pages = pages(&arena);
    let told = |pages: &FixedPages| -> Vec<_> {
        let number = |index| pages.page(index).map(OwnedPage::pfn);
        let starts = pages.iovecs().into_iter().map(|iovec| iovec.iov_base);
        starts.zip((0..).map(number)).collect()
    };
    let before = told(&pages);
    let first = pages[0].to_vec();
    bytes(&mut pages)[..4096].copy_from_slice(&first);
    assert_eq!((pages[1][4095], pages[1][4096]), (0, 3));
    assert_eq!(told(&pages), before);
    assert!(pages.page(3).is_none());
}

#[test]
fn pages_are_written_from_and_read_into() {
    let arena = open();
    let mut pages = pages(&arena);
    let mut ring = match IoUring::new(8) {
        Ok(ring) => ring,
        Err(error) => return println!("skipped: no io_uring here: {error}"),
    };
    // SAFETY: the ring, which was made later, is dropped before the pages; nothing refers to them
    // while operations are under way.
    if let Err(error) = unsafe { pages.register(&ring.submitter()) } {
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{error}");
        return println!("skipped: memory may not be locked: {error}");
    }
    let path = std::env::temp_dir().join(format!("zonal-fixed-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.unwrap();
    fs::remove_file(&path).unwrap();
    let fd = Fd(file.as_raw_fd());

    assert_eq!(run(&mut ring, &pages.write(1, 5000, fd).unwrap().offset(100).build()), 5000);
    // Free memory goes back to the kernel meanwhile; the pages' own does not.
    let given = arena.give_back(usize::MAX, GiveBack::Now).unwrap();
    println!("{given:?}");
    assert_eq!(run(&mut ring, &pages.read(2, fd).unwrap().offset(50).build()), 5050);
    assert!(pages[2][..50].iter().all(|&byte| byte == 0));
    assert!(pages[2][50..5050].iter().all(|&byte| byte == 3));
    assert!(pages[2][5050..].iter().all(|&byte| byte == 9), "not read");
    pages[0].fill(8);
    assert_eq!(run(&mut ring, &pages.write(0, 1, fd).unwrap().build()), 1);
    assert_eq!(run(&mut ring, &pages.read(1, fd).unwrap().build()), 5100);
    assert_eq!((pages[1][0], pages[1][1]), (8, 0), "the pages' own memory, not what it was");
    ring.submitter().unregister_buffers().unwrap();
}

/// What a program does with pages and a ring, errors or not: whatever is refused, what was in the pages is
/// there, they can be registered again, and all goes back to the arena.
fn life(at: usize, registered: &AtomicUsize) {
    let arena = open();
    let mut pages = pages(&arena);
    if let Ok(mut ring) = IoUring::new(8) {
        // SAFETY: the ring is dropped before the pages; nothing refers to them meanwhile.
        let first = unsafe { pages.register(&ring.submitter()) };
        // SAFETY: the same.
        let again = unsafe { pages.register(&ring.submitter()) };
        assert!(first.is_err() || again.is_err(), "call {at}: registered twice");
        if first.is_ok() || again.is_ok() {
            registered.fetch_add(1, SeqCst);
            let zeroes = fs::File::open("/dev/zero").unwrap();
            let read = pages.read(0, Fd(zeroes.as_raw_fd())).unwrap().build();
            // SAFETY: the page and the file outlive the operation, which is waited for.
            unsafe { ring.submission().push(&read) }.unwrap();
            // One call of these at most is refused.
            ring.submit_and_wait(1).or_else(|_| ring.submit_and_wait(1)).unwrap();
            assert_eq!(ring.completion().next().unwrap().result(), 4096);
            pages[0].iter_mut().for_each(|byte| assert_eq!(std::mem::take(byte), 0, "call {at}"));
            let _ = ring.submitter().unregister_buffers();
        }
    }
    assert!(
        [1, 2]
            .into_iter()
            .zip([3, 9])
            .all(|(page, stamp)| pages[page].iter().all(|&byte| byte == stamp))
    );
    drop(pages.into_pages());
    arena.drain();
    let zone = arena.zone_info(ZoneId(0)).unwrap();
    assert_eq!((zone.free, zone.cached), (zone.managed, 0), "call {at}");
}

#[test]
fn every_call_of_a_ring_is_refused_in_turn() {
    let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_register, libc::SYS_io_uring_enter];
    for errno in [libc::EPERM, libc::ENOMEM, libc::EINTR] {
        let registered = AtomicUsize::new(0);
        let Some(made) = refuse_each(&calls, errno, |at| life(at, &registered)) else { return };
        if IoUring::new(8).is_err() {
            return println!("skipped: no io_uring here");
        }
        assert_eq!(made, 5, "one to set up, three about registering, one to enter");
        assert_eq!(registered.into_inner(), 5, "each time but when there was no ring");
    }
}

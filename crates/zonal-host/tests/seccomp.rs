//! A filter that takes `membarrier` away from a thread after handles were claimed.
#![cfg(not(loom))]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use zonal::{Request, ZoneId};
use zonal_host::{Arena, fence};

const MIB: usize = 1 << 20;

/// Has the kernel answer every `membarrier` of this thread with `EPERM`; whether it let us.
fn deny_membarrier() -> bool {
    let statement = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The number of the call is the first word.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_membarrier as u32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return false;
    }
    // SAFETY: the kernel copies the filter, which is as long as it says.
    unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0 }
}

/// Says so when it goes, also by a panic.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The owner goes on, mostly outside its slot; the thread that drains passes its stacks over, and counts
/// that.
#[test]
fn a_drain_without_membarrier_does_not_panic() {
    let arena = Arena::builder().bytes(16 * MIB).cpus(1).owners(1).open().unwrap();
    let Ok(mut handle) = arena.handle() else { return };
    let (claimed, done) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&done);
            claimed.wait();
            if deny_membarrier() {
                let before = fence::refusals();
                (0..1000).for_each(|_| assert!(arena.drain() < 4096));
                assert!(fence::refusals() > before, "the filter did not work");
            } else {
                println!("skipped: no filter can be set here");
            }
        });
        claimed.wait();
        while !done.load(Relaxed) {
            let page = handle.alloc(&Request::frame()).unwrap();
            handle.free(page);
        }
    });
    assert!(arena.drain() > 0, "from a thread without a filter");
    let zone = arena.zone_info(ZoneId(0)).unwrap();
    assert_eq!((zone.free, zone.cached), (zone.managed, 0));
}

/// The owner does nothing; its cache is passed over, and counted, by drains and by requests that
/// find nothing else.
#[test]
fn a_cache_that_cannot_be_drained_is_passed_over() {
    let arena = Arena::builder().bytes(16 * MIB).cpus(1).owners(1).open().unwrap();
    let Ok(mut handle) = arena.handle() else { return };
    // Leaves some frames in the handle's cache.
    handle.alloc(&Request::frame()).map(|page| handle.free(page)).unwrap();
    let cached = arena.cache_info(ZoneId(0), handle.cpu()).unwrap().count;
    assert!(cached > 0);
    let managed = arena.zone_info(ZoneId(0)).unwrap().managed;
    let frames = thread::scope(|scope| {
        let elsewhere = scope.spawn(|| {
            if !deny_membarrier() {
                return println!("skipped: no filter can be set here");
            }
            let before = fence::refusals();
            arena.drain();
            assert!(fence::refusals() > before);
            assert!(
                arena.cache_info(ZoneId(0), handle.cpu()).is_none(),
                "no other thread can look"
            );
            let mut pages = Vec::new();
            while let Ok(page) = arena.alloc(&Request::frame()) {
                pages.push(page);
            }
            assert_eq!(pages.len() as u64 + cached, managed);
        });
        elsewhere.join()
    });
    frames.unwrap();
    assert!(arena.drain() >= cached, "from a thread without a filter");
    let zone = arena.zone_info(ZoneId(0)).unwrap();
    assert_eq!((zone.free, zone.cached), (zone.managed, 0));
}

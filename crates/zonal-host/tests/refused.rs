//! Every system call of an arena's life refused in turn, whichever library makes it: files that are read about
//! the machine, threads, and what is beside the door of `sys.rs`. (What maps memory is refused behind that
//! door, by the unit tests: without it the test itself would have none.)
#![cfg(not(loom))]

mod refusing;

use refusing::refuse_each;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use zonal::{Order, Request, ZoneId};
use zonal_host::compactor::{Compactor, Settings};
use zonal_host::numa::Topology;
use zonal_host::region::GiveBack;
use zonal_host::{Arena, cpu};

const CALLS: [i64; 11] = [
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_statx,
    libc::SYS_clone3,
    libc::SYS_getcpu,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_membarrier,
    libc::SYS_mbind,
    libc::SYS_mincore,
    libc::SYS_madvise,
];

/// What a program does with an arena, errors or not; whether it opened and had a compactor.
fn life(at: usize) -> [bool; 2] {
    let machine = Topology::read();
    assert!(machine.with_memory().count() > 0 && cpu::possible() > 0 && cpu::available() > 0);
    if let Ok(allowed) = cpu::allowed() {
        // Where it is already.
        let _ = allowed.first().map(|&first| cpu::pin_to(first));
    }
    let Ok(arena) = Arena::builder().bytes(16 << 20).owners(1).open() else { return [false; 2] };
    let arena = Arc::new(arena);
    let compactor = Compactor::start(arena.clone(), Settings::default());
    let compacts = compactor.is_ok();
    let mut page = arena.alloc(&Request::frame().zero()).expect("there is room");
    page.fill(5);
    if let Ok(mut handle) = arena.handle() {
        let page = handle.alloc(&Request::frame()).expect("there is room");
        handle.free(page);
    }
    let huge = arena.alloc_owned(&Request::new(Order::HUGE)).expect("there is room");
    for how in [GiveBack::Now, GiveBack::WhenNeeded] {
        let _ = arena.give_back(2, how);
    }
    assert!(page.iter().all(|&byte| byte == 5), "call {at}");
    drop((page, huge, compactor));
    // One fence at most is refused.
    let _drained = [arena.drain(), arena.drain()];
    for zone in (0..arena.zone_count()).map(|id| arena.zone_info(ZoneId(id as u8)).unwrap()) {
        assert_eq!((zone.free, zone.cached), (zone.managed, 0), "call {at}");
    }
    [true, compacts]
}

#[test]
fn every_call_in_turn() {
    for errno in [libc::EPERM, libc::ENOMEM, libc::EINTR] {
        let lived = [(); 2].map(|()| AtomicUsize::new(0));
        let count = |at| {
            for (done, count) in life(at).into_iter().zip(&lived) {
                count.fetch_add(usize::from(done), SeqCst);
            }
        };
        let Some(made) = refuse_each(&CALLS, errno, count) else { return };
        let [opened, compacted] = lived.map(AtomicUsize::into_inner);
        println!("errno {errno}: {made} calls, {opened} times open, {compacted} times compacted");
        assert!(made > 10, "{made} calls");
        // A thread that cannot be had is the compactor's alone.
        assert!(compacted < opened && made < 2 * opened, "{opened} {compacted} of {made}");
    }
}

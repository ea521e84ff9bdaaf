//! Every system call of an arena's life refused, one at a time: what has been promised holds all
//! the same, and nothing is lost or touched that is not the arena's.

use super::*;
use crate::numa::{self, Binding, Topology};
use crate::region::{GiveBack, HUGE_PAGE};
use crate::sys::shim::{refuse, refuse_all, refuse_each, without_nodes};
use crate::{HugePages, OwnedPage, cpu};
use std::ops::Range;
use std::sync::Arc;
use zonal::platform::Platform;
use zonal::policy::Sound;
use zonal::preset::{Linux416, Zonal};
use zonal::{NodeId, NodePolicy};

const MIB: usize = 1 << 20;

/// Nothing is allocated: every frame is free.
fn assert_whole<S: Policy>(arena: &Arena<S>) {
    arena.drain();
    for zone in (0..arena.zone_count()).map(|zone| ZoneId(zone as u8)) {
        let zone = arena.zone_info(zone).unwrap();
        assert_eq!((zone.free, zone.cached), (zone.managed, 0));
    }
}

/// What a program does with an arena, errors or not. Whether none occurred.
fn life<S: Sound>(opened: Result<Arena<S>, ArenaError>) -> bool {
    let Ok(arena) = opened else { return false };
    let arena = Arc::new(arena);
    let mut fine = true;
    for order in [Order::ZERO, Order::new(3).unwrap(), Order::HUGE] {
        let request = Request::new(order);
        let mut page = arena.alloc(&request).unwrap();
        page.fill(order.get());
        let owned: OwnedPage<S> = arena.alloc_owned(&request.zero()).unwrap();
        assert!(owned.iter().all(|&byte| byte == 0));
        assert!(page.iter().all(|&byte| byte == order.get()));
        drop(page);
        for how in [GiveBack::Now, GiveBack::WhenNeeded] {
            fine &= arena.give_back(2, how).is_ok();
        }
        assert!(owned.iter().all(|&byte| byte == 0), "given back, and in use");
    }
    // Others' caches are drained by system calls: the handle's own too, from outside.
    if let Ok(mut handle) = arena.handle() {
        let page = handle.alloc(&Request::frame()).unwrap();
        handle.free(page);
    }
    assert_whole(&arena);
    fine
}

/// How often `life` did not go as without a refusal.
fn lives<S: Sound>(builder: impl Fn() -> Builder<S>) -> (usize, usize) {
    lives_of(|| builder().open())
}

fn lives_of<S: Sound>(open: impl Fn() -> Result<Arena<S>, ArenaError>) -> (usize, usize) {
    let (mut calls, mut failed) = (0, 0);
    for errno in [libc::ENOMEM, libc::EEXIST] {
        calls += refuse_each(errno, || failed += usize::from(!life(open())));
    }
    (calls, failed)
}

fn small<S: Sound>() -> Builder<S> {
    Builder::new().bytes(8 * MIB).cpus(2).owners(1).nodes(false)
}

fn every_call_of_an_arena<S: Sound>() {
    let (calls, failed) = lives(small::<S>);
    assert!(calls >= 30 && 2 * failed > calls, "{failed} of {calls}");
    let (calls, failed) = lives(|| small::<S>().reserve(12 * MIB).huge(HugePages::Advise));
    assert!(calls >= 30 && 2 * failed > calls, "{failed} of {calls}");
    // Where the pool has none the arena does not open; the calls up to there are what counts.
    let (calls, _) = lives(|| small::<S>().huge(HugePages::HugeTlb));
    assert!(calls >= 6, "{calls}");
}

#[test]
fn every_call_of_an_arena_zonal() {
    every_call_of_an_arena::<Zonal>();
}

#[test]
fn every_call_of_an_arena_linux416() {
    every_call_of_an_arena::<Linux416>();
}

/// Nodes that this machine may not have, each with these CPUs, and whether it has memory.
fn machine<const N: usize>(nodes: [(Range<u32>, bool); N]) -> Topology {
    let node = |(id, (cpus, has_memory)): (usize, (Range<u32>, bool))| numa::Node {
        id: NodeId(id as u8),
        cpus: cpus.map(CpuId).collect(),
        has_memory,
        distances: Vec::new(),
    };
    Topology::from_nodes(nodes.into_iter().enumerate().map(node).collect())
}

/// Memory for three nodes, of which this machine may have one.
#[test]
fn every_call_of_an_arena_on_three_nodes() {
    let machine = machine([(0..1, true), (1..2, true), (2..3, true)]);
    without_nodes(|| {
        let open = || small::<Zonal>().bytes(24 * MIB).open_on(&machine);
        let (calls, failed) = lives_of(open);
        assert!(calls >= 36 && 2 * failed > calls, "{failed} of {calls}");
        let mut bound = Vec::new();
        for at in 0.. {
            let (opened, ledger) =
                refuse(at, libc::EPERM, || open().map(|arena| arena.zone_count()));
            let Some((name, part)) = ledger.refused else {
                assert_eq!(opened.ok(), Some(3), "a zone for each");
                break;
            };
            if name == "mbind" {
                assert_eq!(opened, Ok(1), "call {at}: it does without nodes");
                bound.push(part.len());
            }
        }
        assert_eq!(bound, [8 * MIB; 3], "each node's part was refused");
        // A filter that lets none pass, and a cpuset.
        for errno in [libc::EPERM, libc::EINVAL] {
            let (fine, ledger) = refuse_all("mbind", errno, || life(open()));
            assert!(fine && ledger.mapped.is_empty() && ledger.strangers.is_empty(), "{ledger:x?}");
        }
    });
}

#[test]
fn memory_of_every_node_is_shown_and_given_back() {
    let machine = machine([(0..1, true), (1..2, true), (2..3, true)]);
    without_nodes(|| {
        let arena = small::<Zonal>().bytes(24 * MIB).open_on(&machine).unwrap();
        let used: Vec<_> = (0..3)
            .map(|node| {
                let there = NodePolicy::Preferred(NodeId(node));
                arena.alloc(&Request::new(Order::MAX).nodes(there).this_node()).unwrap()
            })
            .collect();
        used.into_iter().for_each(|mut page| page.fill(1));
        let mut shown = Vec::new();
        assert_eq!(arena.visit_free(usize::MAX, |pfn, _| shown.push(pfn)), 3);
        let part = |pfn: &Pfn| (pfn.get() - arena.first().get()) / (8 * MIB / FRAME_SIZE) as u64;
        shown.sort();
        assert!(shown.iter().map(part).eq(0..3), "one of each node");
        let given = arena.give_back(usize::MAX, GiveBack::Now);
        assert_eq!(given, Ok(GivenBack { examined: 3, bytes: 12 * MIB }));
        assert_whole(&arena);
    });
}

/// Its CPU of the allocator stands for all CPUs of the machine, and is on the first node.
#[test]
fn a_handle_is_on_the_node_of_the_cpu_that_took_it() {
    let here = cpu::allowed().unwrap().pop().unwrap();
    cpu::pin_to(here).unwrap();
    let machine = machine([(0..here.0, true), (here.0..here.0 + 1, true)]);
    without_nodes(|| {
        let arena = small::<Zonal>().bytes(16 * MIB).cpus(1).open_on(&machine).unwrap();
        let mut handle = arena.handle().unwrap();
        let page = handle.alloc(&Request::frame().this_node()).unwrap();
        assert!(page.pfn().get() >= arena.first().get() + (8 * MIB / FRAME_SIZE) as u64);
        handle.free(page);
    });
}

#[test]
fn the_node_of_a_taken_cpu_stays() {
    let here = cpu::allowed().unwrap().pop().unwrap();
    cpu::pin_to(here).unwrap();
    let machine = machine([(0..here.0, true), (here.0..here.0 + 1, true)]);
    without_nodes(|| {
        let arena = small::<Zonal>().bytes(16 * MIB).cpus(1).open_on(&machine).unwrap();
        let handle = arena.handle().unwrap();
        let host = arena.inner().platform();
        assert_eq!(host.node(handle.cpu()), NodeId(1));
        // As if its owner had taken it elsewhere.
        host.set_node(handle.cpu(), NodeId(0));
        assert_eq!(arena.handle().err(), Some(OwnError::Taken));
        assert_eq!(host.node(handle.cpu()), NodeId(0));
    });
}

#[test]
fn one_node_with_memory_need_not_be_the_first() {
    let cpus = 0..cpu::possible();
    let machine = machine([(0..0, false), (cpus, true)]);
    without_nodes(|| {
        let arena = small::<Zonal>().open_on(&machine).unwrap();
        arena.alloc(&Request::frame().this_node()).unwrap();
        let mut handle = arena.handle().unwrap();
        let page = handle.alloc(&Request::frame().this_node()).unwrap();
        handle.free(page);
    });
}

/// What is swapped out is not in memory, and is not zero either.
#[test]
fn what_is_not_in_memory_is_given_back() {
    let (given, _) = refuse_all("mincore", 0, || {
        let arena = small::<Zonal>().open().unwrap();
        let request = Request::new(Order::MAX);
        arena.alloc(&request).unwrap().fill(7);
        let given = arena.give_back(usize::MAX, GiveBack::Now);
        let all = [(); 2].map(|()| arena.alloc(&request).unwrap());
        assert!(all.iter().all(|page| page.iter().all(|&byte| byte == 0)));
        given
    });
    assert_eq!(given, Ok(GivenBack { examined: 1, bytes: 0 }));
}

#[test]
fn what_is_refused_is_in_the_error() {
    for at in 0.. {
        let (opened, ledger) = refuse(at, libc::EPERM, || small::<Zonal>().open().map(drop));
        let Some((name, _)) = ledger.refused else { break };
        match opened {
            // Only the ends of reservations, and what is unmapped at the end, may stay.
            Ok(()) => assert_eq!(name, "munmap", "call {at}"),
            Err(error) => {
                assert!(error.to_string().contains("Operation not permitted"), "{name}: {error}");
            }
        }
    }
}

#[test]
fn calls_that_are_not_about_memory() {
    let region = Region::zeroed(HUGE_PAGE).unwrap();
    let calls = refuse_each(libc::EPERM, || {
        let _ = cpu::allowed();
        let _ = cpu::pin_to(CpuId(u32::MAX));
    });
    assert_eq!(calls, 1, "a number that is too large is not asked for");
    let (allowed, _) = refuse(0, libc::EPERM, cpu::allowed);
    assert!(allowed.unwrap_err().to_string().starts_with("CPU affinity: "));
    let here = cpu::allowed().unwrap();
    let (pinned, _) = refuse(0, libc::EPERM, || cpu::pin_to(here[0]));
    assert!(pinned.unwrap_err().to_string().starts_with("CPU affinity: "));
    assert_eq!(cpu::allowed().unwrap(), here, "as before");

    let bind = |region: &Region| numa::bind(region, 0..HUGE_PAGE, NodeId(0), Binding::Preferred);
    let (bound, ledger) = refuse(usize::MAX, 0, || bind(&region));
    assert!(bound.is_err() && ledger.strangers.len() == 1, "mapped before the ledger was opened");
    let (bound, _) = refuse(4, libc::EPERM, || bind(&Region::zeroed(HUGE_PAGE).unwrap()));
    assert!(matches!(bound, Err(numa::NumaError::Os { .. }) | Ok(())), "{bound:?}");
}

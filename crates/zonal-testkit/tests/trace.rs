//! What a trace policy is told: an event for everything that happens, none for what does not.
#![cfg(all(target_os = "linux", not(loom), not(shuttle)))]

use std::cell::RefCell;
use zonal::policy::Sound;
use zonal::policy::trace::{Event, Point, Trace};
use zonal::preset::{Cluster, Linux416, Traced, Zonal};
use zonal::{MigrateType, Order, Pfn, Request};
use zonal_host::Arena;

thread_local! {
    static TOLD: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what the calling thread is told, but for [`Point::LruActivate`].
struct Keep;

impl Trace for Keep {
    fn is_on(point: Point) -> bool {
        point != Point::LruActivate
    }
    fn record(event: &Event) {
        TOLD.with_borrow_mut(|told| told.push(*event));
    }
}

fn told() -> Vec<Event> {
    TOLD.take()
}

fn count(events: &[Event], point: Point) -> usize {
    events.iter().filter(|event| event.point() == point).count()
}

fn arena<S: Sound>() -> Arena<Traced<S, Keep>> {
    arena_of(16 << 20)
}

fn arena_of<S: Sound>(bytes: usize) -> Arena<Traced<S, Keep>> {
    // Neither the machine's CPUs nor its nodes: by them CPUs keep more or less, or nothing.
    let arena = Arena::builder().preset::<Traced<S, Keep>>().reserve(bytes).nodes(false);
    let arena = arena.cpus(2).owners(1).open().expect("an arena");
    told();
    arena
}

/// Every block in its turn is allocated, then freed, and never twice at a time.
fn check_turns(events: &[Event]) {
    let mut live = std::collections::HashMap::new();
    for event in events {
        match *event {
            Event::Alloc { pfn, order, .. } => {
                assert_eq!(live.insert(pfn, order), None, "{pfn} is handed out twice");
            }
            Event::Free { pfn, order } => {
                assert_eq!(live.remove(&pfn), Some(order), "{pfn} is freed and was not handed out");
            }
            _ => {}
        }
    }
    assert!(live.is_empty(), "never freed: {live:?}");
}

fn on_each_way<S: Sound>() {
    let arena = arena::<S>();
    let mut handle = arena.handle().expect("a handle");
    for n in [0, 1, 3, 5, 9, 10] {
        let order = Order::new(n).expect("an order");
        let request = Request::new(order).migrate(MigrateType::Movable);
        let pfn = handle.alloc_raw(&request).expect("memory");
        // SAFETY: allocated just above, and no code looks into it.
        unsafe { handle.free_raw(pfn, order) }.expect("it is allocated");
        let pfn = arena.alloc_raw(&request).expect("memory");
        // SAFETY: as above.
        unsafe { arena.free_raw(pfn, order) }.expect("it is allocated");
        // SAFETY: the block has no owner any more; a refused free changes nothing.
        let again = unsafe { arena.free_raw(pfn, order) };
        assert!(again.is_err(), "freed twice");
    }
    let events = told();
    assert_eq!((count(&events, Point::Alloc), count(&events, Point::Free)), (12, 12));
    check_turns(&events);
    for event in &events {
        if let Event::Alloc { order, migrate, gfp, .. } = *event {
            assert_eq!(gfp.request(order).migrate_type(), MigrateType::Movable);
            assert_eq!(migrate, MigrateType::Movable);
        }
    }
    let taken = count(&events, Point::AllocZoneLocked);
    assert!(taken > 0, "all of it came from the buddy lists once");

    let mut frames = [Pfn::default(); 700];
    handle.alloc_bulk(&Request::frame(), &mut frames).expect("memory");
    // SAFETY: allocated just above, and no code looks into them.
    let freed = unsafe { handle.free_bulk(&frames) };
    assert_eq!(freed.refused, 0);
    let events = told();
    let all = [Point::Alloc, Point::Free, Point::FreeBatched].map(|point| count(&events, point));
    assert_eq!(all, [700; 3]);
    check_turns(&events);
}

#[test]
fn every_block_is_told_once_on_every_way() {
    on_each_way::<Zonal>();
    on_each_way::<Linux416>();
    on_each_way::<Cluster>();
}

#[cfg(feature = "matrix")]
#[test]
fn every_block_of_linux413_is_told_once() {
    on_each_way::<zonal::preset::Linux413>();
}

fn fallbacks<S: Sound>() {
    let arena = arena::<S>();
    // All memory is movable at first: the first unmovable frame takes a pageblock over.
    let pfn = arena.alloc_raw(&Request::frame()).expect("memory");
    let events = told();
    let extfrag = events.iter().find(|event| event.point() == Point::AllocExtfrag);
    let Some(&Event::AllocExtfrag { alloc_migrate, fallback_migrate, change_ownership, .. }) =
        extfrag
    else {
        panic!("no fallback in {events:?}");
    };
    assert_eq!(alloc_migrate, MigrateType::Unmovable);
    assert_eq!(fallback_migrate, MigrateType::Movable);
    assert!(change_ownership, "all of the pageblock was free");
    // SAFETY: allocated above, and no code looks into it.
    unsafe { arena.free_raw(pfn, Order::ZERO) }.expect("it is allocated");
    check_turns(&[events, told()].concat());
}

#[test]
fn memory_of_another_type_is_told() {
    fallbacks::<Zonal>();
    fallbacks::<Linux416>();
}

#[test]
fn a_refused_request_and_what_is_not_on_are_not_told() {
    let arena = arena::<Zonal>();
    let mut all = Vec::new();
    while let Ok(pfn) = arena.alloc_raw(&Request::new(Order::MAX)) {
        all.push(pfn);
    }
    let events = told();
    assert_eq!(count(&events, Point::Alloc), all.len());
    Keep::emit(Point::LruActivate, || unreachable!("not on"));
    for pfn in all {
        // SAFETY: allocated above, and no code looks into it.
        unsafe { arena.free_raw(pfn, Order::MAX) }.expect("it is allocated");
    }
    check_turns(&[events, told()].concat());
}

/// Of larger blocks each that leaves the map is told, whichever way it goes; one that a CPU kept had left before.
#[test]
fn every_larger_block_that_leaves_the_map_is_told() {
    // So much that each CPU has a current pageblock.
    let arena = arena_of::<Zonal>(1 << 30);
    let mut handle = arena.handle().expect("a handle");
    let mut held = Vec::new();
    let left = |order, times, what: &str| {
        let events = told();
        let taken: Vec<_> =
            events.iter().filter(|event| event.point() == Point::AllocZoneLocked).collect();
        assert_eq!(taken.len(), times, "order {order}, {what}: {taken:?}");
        for event in taken {
            let Event::AllocZoneLocked { order: of, migrate, percpu_refill, .. } = *event else {
                panic!("{event:?}");
            };
            assert_eq!((of, migrate, percpu_refill), (order, MigrateType::Movable, false));
        }
    };
    for n in [1, 3, 5, 9, 10] {
        let order = Order::new(n).expect("an order");
        let request = Request::new(order).migrate(MigrateType::Movable);
        held.push((handle.alloc_raw(&request).expect("memory"), order));
        left(order, 1, "by a handle");
        held.push((arena.alloc_raw(&request).expect("memory"), order));
        left(order, 1, "by the arena");
    }
    for (pfn, order) in held {
        // SAFETY: allocated above, and no code looks into it.
        unsafe { handle.free_raw(pfn, order) }.expect("it is allocated");
    }
    told();
    let mut again = |n, times, what: &str| {
        let order = Order::new(n).expect("an order");
        let request = Request::new(order).migrate(MigrateType::Movable);
        let pfn = handle.alloc_raw(&request).expect("memory");
        left(order, times, what);
        // SAFETY: allocated just above, and no code looks into it.
        unsafe { handle.free_raw(pfn, order) }.expect("it is allocated");
    };
    again(2, 1, "of the current pageblock");
    again(2, 0, "kept");
    again(1, 0, "kept since before");
    for _ in 0..4 {
        again(9, 1, "outside the slot");
    }
}

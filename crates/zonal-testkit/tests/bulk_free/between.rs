//! A list that is prepared and not committed yet: its frames are cached and in no cache. What
//! drains, isolation, ranges, compaction and requests make of them.

use super::{WAY, Way, With, booked, check};
use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use zonal::compact::CompactMode;
use zonal::error::{FreeError, RangeError};
use zonal::frame::FrameKind;
use zonal::policy::Policy;
use zonal::policy::bulk_free::Committed;
use zonal::preset::{Linux416, Zonal};
use zonal::{CpuId, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::host::TestHost;
use zonal_testkit::lists::{Hooked, Hooks};
use zonal_testkit::model::Model;
use zonal_testkit::mover::Moving;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::Shape;
use zonal_testkit::world::{World, with_world};

thread_local! {
    /// Where this thread waits before it commits: it says so, and goes on when told to.
    static PAUSE: RefCell<Option<(Sender<()>, Receiver<()>)>> = const { RefCell::new(None) };
}

/// A pause before the first commit.
pub(super) struct Pause;

impl Hooks for Pause {
    fn commit(_: u64, commit: impl FnOnce() -> Committed) -> Committed {
        if let Some((here, go_on)) = PAUSE.take() {
            here.send(()).unwrap();
            go_on.recv().unwrap();
        }
        commit()
    }
}

pub(super) type Pausing = Hooked<Pause>;

type Threads<'m, S> = World<'m, Probe, With<S>>;

const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);
/// Frames of [`Shape::Flat`], which has pageblocks of 32.
const PAGEBLOCK: u64 = 32;

/// A world in which another thread frees the frames of one pageblock on CPU 1 and waits between
/// the passes; `meanwhile` gets them. At the end all is well, and everything can be had again.
fn between<S: Policy>(meanwhile: impl FnOnce(&Threads<'_, S>, &[Pfn])) -> u64 {
    with_world::<Probe, With<S>, _>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        let out: Vec<Pfn> = std::iter::from_fn(|| allocator.alloc_raw(&MOVABLE).ok()).collect();
        let start = out.iter().map(|pfn| pfn.get()).min().unwrap() + PAGEBLOCK;
        let inside = |pfn: &Pfn| (start..start + PAGEBLOCK).contains(&pfn.get());
        let (mut list, rest): (Vec<Pfn>, Vec<Pfn>) = out.into_iter().partition(inside);
        list.sort_unstable();
        assert_eq!(list.len() as u64, PAGEBLOCK);
        let (here, is_there) = channel();
        let (tell, go_on) = channel();
        let direct_before = booked(world).1;
        std::thread::scope(|scope| {
            let freeing = scope.spawn(|| {
                allocator.platform().switch_cpu(CpuId(1));
                WAY.set(Way::Pausing);
                PAUSE.set(Some((here, go_on)));
                allocator.free_bulk(&list).freed
            });
            is_there.recv().unwrap();
            for &pfn in &list {
                assert_eq!(allocator.frame_state(pfn).unwrap().kind(), FrameKind::Cached);
            }
            meanwhile(world, &list);
            tell.send(()).unwrap();
            assert_eq!(freeing.join().unwrap(), list.len());
        });
        let direct = booked(world).1 - direct_before;
        let mut model = Model::new(allocator.plan());
        rest.iter().for_each(|&pfn| model.insert(pfn, Order::ZERO));
        check(world, &model);
        let again: Vec<Pfn> = std::iter::from_fn(|| allocator.alloc_raw(&MOVABLE).ok()).collect();
        assert_eq!(again.len(), list.len(), "I-3, I-6");
        again.iter().for_each(|&pfn| model.insert(pfn, Order::ZERO));
        check(world, &model);
        direct
    })
}

fn pfns(list: &[Pfn]) -> std::ops::Range<Pfn> {
    list[0]..Pfn::new(list[0].get() + PAGEBLOCK)
}

fn no_request_gets_them<S: Policy>() {
    let direct = between::<S>(|world, list| {
        let allocator = &world.allocator;
        assert!(allocator.alloc_raw(&MOVABLE).is_err(), "they are not free yet");
        for &pfn in list {
            let (order, state) = (Order::ZERO, allocator.frame_state(pfn));
            let twice = FreeError::DoubleFree { pfn, order };
            assert_eq!(allocator.free_raw(pfn, order), Err(twice));
            assert_eq!(allocator.frame_state(pfn), state);
        }
    });
    assert_eq!(direct, 0);
}

fn drains_do_not_wait<S: Policy>() {
    let direct = between::<S>(|world, _| {
        assert_eq!(world.allocator.drain_all(), 0, "they are in no cache");
    });
    assert_eq!(direct, 0);
}

/// Isolated and restored between the passes: the frames go into the cache as ever.
fn isolation_goes<S: Policy>() {
    let direct = between::<S>(|world, list| {
        let allocator = &world.allocator;
        let token = allocator.isolate(pfns(list)).unwrap();
        assert_eq!(allocator.busy_frames(&token), PAGEBLOCK, "a free has them");
        allocator.undo_isolation(token).unwrap();
    });
    assert_eq!(direct, 0);
}

/// A pageblock isolated between the passes gets its frames by itself: no drain is needed after.
fn isolation_stays<S: Policy>() {
    with_world::<Probe, With<S>, _>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        let mut list: Vec<Pfn> =
            (0..PAGEBLOCK).map(|_| allocator.alloc_raw(&MOVABLE).unwrap()).collect();
        list.sort_unstable();
        let start = list[0].get() & !(PAGEBLOCK - 1);
        let inside = list.iter().filter(|pfn| pfn.get() < start + PAGEBLOCK).count() as u64;
        let (here, is_there) = channel();
        let (tell, go_on) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                allocator.platform().switch_cpu(CpuId(1));
                WAY.set(Way::Pausing);
                PAUSE.set(Some((here, go_on)));
                assert_eq!(allocator.free_bulk(&list).freed, list.len());
            });
            is_there.recv().unwrap();
            let range = Pfn::new(start)..Pfn::new(start + PAGEBLOCK);
            let token = allocator.isolate(range).unwrap();
            assert!(allocator.busy_frames(&token) >= inside);
            tell.send(()).unwrap();
            let began = Instant::now();
            while booked(world).1 < inside && began.elapsed() < Duration::from_secs(10) {
                std::thread::yield_now();
            }
            assert_eq!(allocator.busy_frames(&token), 0, "on the lists, without another drain");
            allocator.undo_isolation(token).unwrap();
        });
        check(world, &Model::new(allocator.plan()));
    });
}

/// Who wants these very frames is told that they are busy, and has them later.
fn ranges_are_busy<S: Policy>() {
    let direct = between::<S>(|world, list| {
        let refused = world.allocator.alloc_range(pfns(list)).unwrap_err();
        assert!(matches!(refused, RangeError::Busy { .. }), "{refused}");
        world.allocator.drain_all();
    });
    assert_eq!(direct, 0);
}

/// A prepared page is not one to move: the host is not asked, and compaction comes to an end.
fn compaction_passes_by<S: Policy>() {
    between::<S>(|world, list| {
        let allocator = &world.allocator;
        allocator.platform().movers().set(Moving::Obeys);
        let order = Order::new(4).unwrap();
        let _ = allocator.compact_zone(ZoneId(0), order, CompactMode::Sync);
        let asked = allocator.platform().movers().take_moved();
        assert!(asked.iter().all(|page| !list.contains(&page.from)), "{asked:?}");
        assert!(allocator.alloc_raw(&MOVABLE.with_order(order)).is_err());
        allocator.platform().movers().set(Moving::Cannot);
    });
}

macro_rules! on_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn no_request_gets_a_prepared_frame() { no_request_gets_them::<$preset>(); }
            #[test]
            fn a_drain_passes_prepared_frames() { drains_do_not_wait::<$preset>(); }
            #[test]
            fn an_isolation_comes_and_goes() { isolation_goes::<$preset>(); }
            #[test]
            fn an_isolation_gets_prepared_frames() { isolation_stays::<$preset>(); }
            #[test]
            fn a_range_with_prepared_frames_is_busy() { ranges_are_busy::<$preset>(); }
            #[test]
            fn compaction_passes_prepared_frames() { compaction_passes_by::<$preset>(); }
        }
    )*};
}

on_presets! {
    linux416: Linux416;
    default_preset: Zonal;
}

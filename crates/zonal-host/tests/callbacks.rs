//! A pager that panics, or fails, at each of its calls in turn, and a visitor of free memory that panics:
//! whatever an arena was about to do, no frame of it is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use zonal::policy::Sound;
use zonal::preset::{Linux416, Zonal};
use zonal::slow_path::Shortage;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{Immovable, MigrateType, Migration, Order, Pfn, Request, ZoneId};
use zonal_host::pager::{FreeFrames, Pager, copy_block};
use zonal_host::region::GiveBack;
use zonal_host::{Arena, ArenaError};

const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

/// What a call does in its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Panics,
    Fails,
}

/// Single frames of an arena, by number.
struct Frames {
    held: Mutex<Vec<Pfn>>,
    /// Calls until one takes its turn; 0: none will.
    fuse: AtomicU64,
    turn: Turn,
}

impl Frames {
    /// Whether a call goes on. If not it fails.
    fn called(&self) -> bool {
        let left = self.fuse.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        assert!(left != Ok(1) || self.turn == Turn::Fails, "planted");
        left != Ok(1)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Vec<Pfn>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call of the arena; the planted panic ends it and nothing else.
    fn call<R>(&self, call: impl FnOnce() -> R) -> Option<R> {
        let armed = self.fuse.load(Relaxed) > 0;
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(result) => Some(result),
            Err(_) if armed && self.fuse.load(Relaxed) == 0 => None,
            Err(other) => std::panic::resume_unwind(other),
        }
    }
}

// SAFETY: a frame is moved with the list locked in which it is found, which names its new place before
// the lock is left; all are single frames.
unsafe impl Pager for Frames {
    fn reclaim(&self, frames: &dyn FreeFrames, _: &Shortage) -> u64 {
        if !self.called() {
            return 0;
        }
        let given: Vec<Pfn> = {
            let mut held = self.held();
            let most = held.len().min(8);
            held.drain(..most).collect()
        };
        // SAFETY: they were ours, and are off the list.
        let freed =
            given.iter().filter(|&&pfn| unsafe { frames.free_raw(pfn, Order::ZERO) }.is_ok());
        freed.count() as u64
    }

    unsafe fn migrate(&self, page: &Migration) -> Result<(), Immovable> {
        let mut held = self.held();
        let place = held.iter_mut().find(|pfn| **pfn == page.from && page.order == Order::ZERO);
        let place = place.ok_or(Immovable)?;
        if !self.called() {
            return Err(Immovable);
        }
        // SAFETY: the first is ours as long as we have the list, the second by the caller's contract.
        unsafe { copy_block(page.from, page.to, page.order) };
        *place = page.to;
        Ok(())
    }

    fn wake_reclaim(&self, _: ZoneId) {
        self.called();
    }

    fn wake_compaction(&self, _: ZoneId, _: Order) {
        self.called();
    }
}

/// What a program does with an arena, whatever becomes of it.
fn life<S: Sound>(arena: &Arena<S>, frames: &Frames) {
    let order = |order| Order::new(order).expect("an order");
    // All memory, of which every second frame goes: what is free is in pieces.
    let mut all = Vec::new();
    while let Some(Ok(pfn)) = frames.call(|| arena.alloc_raw(&MOVABLE.no_wait())) {
        all.push(pfn);
    }
    for (nth, pfn) in all.into_iter().enumerate() {
        if nth % 2 == 0 {
            // SAFETY: it is ours, and not used.
            frames.call(|| unsafe { arena.free_raw(pfn, Order::ZERO) }.expect("it is held"));
        } else {
            frames.held().push(pfn);
        }
    }
    let mut pages = Vec::new();
    for request in [MOVABLE.with_order(order(4)), MOVABLE.with_order(order(6)).zero()] {
        pages.extend(frames.call(|| arena.alloc(&request)).and_then(Result::ok));
    }
    drop(frames.call(|| arena.alloc(&Request::new(Order::HUGE)).ok()));
    if let Ok(mut handle) = arena.handle() {
        let page = frames.call(|| handle.alloc(&MOVABLE.with_order(order(5))).ok()).flatten();
        page.into_iter().for_each(|page| handle.free(page));
    }
    // The rest, until the pager has to give some up.
    while let Some(Ok(page)) = frames.call(|| arena.alloc(&MOVABLE)) {
        pages.push(page);
        if pages.len() > 1200 {
            break;
        }
    }
    drop(pages);
    let visit = |_, _| {
        frames.called();
    };
    frames.call(|| arena.visit_free(usize::MAX, visit));
    frames.call(|| arena.give_back(usize::MAX, GiveBack::Now).expect("the kernel takes it"));
}

/// A life in which the call `index` takes its turn; whether there was one.
fn at_index<S: Sound>(index: u64, turn: Turn) -> Result<bool, ArenaError> {
    let fuse = AtomicU64::new(index);
    let frames = Arc::new(Frames { held: Mutex::default(), fuse, turn });
    let watermarks =
        WatermarkConfig { min_free: MinFree::Frames(64), ..WatermarkConfig::default() };
    let builder = Arena::builder().preset::<S>().bytes(8 << 20).cpus(2).owners(1).nodes(false);
    let arena = builder.watermarks(watermarks).pager(frames.clone()).open()?;
    life(&arena, &frames);
    let taken = frames.fuse.swap(0, Relaxed) == 0;
    for pfn in frames.held().drain(..) {
        // SAFETY: it is ours, and not used.
        unsafe { arena.free_raw(pfn, Order::ZERO) }.expect("it is held");
    }
    arena.drain();
    for zone in (0..arena.zone_count()).map(|zone| ZoneId(zone as u8)) {
        let zone = arena.zone_info(zone).expect("a zone");
        assert_eq!((zone.free, zone.cached, zone.isolated), (zone.managed, 0, 0), "call {index}");
        assert_eq!(zone.counted_free, zone.free, "call {index}");
    }
    Ok(taken)
}

/// The first ones one by one, then a part further each time: hundreds are alike.
fn at_many<S: Sound>(turn: Turn) -> Result<(), ArenaError> {
    let mut index = 1;
    while at_index::<S>(index, turn)? {
        index += 1 + index / 32;
    }
    println!("{turn:?} at one of {index} calls under {}", S::NAME);
    assert!(index > 30, "{index} calls");
    Ok(())
}

#[test]
fn no_callback_that_panics_loses_a_frame() -> Result<(), ArenaError> {
    at_many::<Zonal>(Turn::Panics)?;
    at_many::<Linux416>(Turn::Panics)
}

#[test]
fn no_callback_that_fails_loses_a_frame() -> Result<(), ArenaError> {
    at_many::<Zonal>(Turn::Fails)?;
    at_many::<Linux416>(Turn::Fails)
}

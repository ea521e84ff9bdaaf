//! Frames of the simulated allocator with memory behind them.

use super::Lie;
use crate::cache::{Costs, SimFrames};
use crate::current;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Mutex, OnceLock};
use zonal::Pfn;
use zonal::page_state::PageState;
use zonal::policy::trace::Off;
use zonal_cache::frames::{Frames, PAGE};

/// What a frame has that is free: no page has it by a write.
const POISON: u8 = 0xDD;

/// The bytes of a frame. Atomics, so that they may be written to through a shared reference.
#[repr(align(4096))]
struct Bytes([AtomicU8; PAGE]);

/// [`SimFrames`], each with a page of the heap once it was allocated.
pub(super) struct ByteFrames {
    frames: SimFrames,
    /// The first frame that there is.
    base: u64,
    bytes: Vec<OnceLock<Box<Bytes>>>,
    lie: Lie,
    /// For [`Lie::Frames`]: what was read last, and for [`Lie::Kept`]: whether one was.
    last: Mutex<Vec<u8>>,
    kept: AtomicBool,
}

impl ByteFrames {
    /// Those of this thread's allocator.
    pub(super) fn new(lie: Lie) -> Self {
        let zones = current::with(|allocator| {
            let zones = allocator.zones();
            zones.map(|zone| (zone.start.get(), zone.start.get() + zone.spanned)).collect()
        });
        let zones: Vec<(u64, u64)> = zones.expect("an allocator is on this thread");
        let base = zones.iter().map(|zone| zone.0).min().unwrap_or(0);
        let end = zones.iter().map(|zone| zone.1).max().unwrap_or(0);
        Self {
            frames: SimFrames::new(Costs::default()),
            base,
            bytes: (base..end).map(|_| OnceLock::new()).collect(),
            lie,
            last: Mutex::new(Vec::new()),
            kept: AtomicBool::new(false),
        }
    }

    fn bytes_of(&self, frame: Pfn) -> &Bytes {
        let place = &self.bytes[(frame.get() - self.base) as usize];
        place.get_or_init(|| Box::new(Bytes([const { AtomicU8::new(POISON) }; PAGE])))
    }

    fn poison(&self, frame: Pfn) {
        self.bytes_of(frame).0.iter().for_each(|byte| byte.store(POISON, Relaxed));
    }
}

// SAFETY: the allocator behind `frames` gives a frame out once until it is freed. Each has a box of its own, as long and as
// aligned as a page, which is made once, is never moved out of its cell, and is there as long as `self`. Its bytes are
// atomics, all of them initialised, and the pointer is to all of these: it may be read and written through.
unsafe impl Frames for ByteFrames {
    type Trace = Off;

    fn alloc(&self) -> Option<Pfn> {
        self.frames.alloc()
    }

    fn alloc_to_write(&self, less_throttled: bool) -> Option<Pfn> {
        self.frames.alloc_to_write(less_throttled)
    }

    fn read(&self, from: &[u8], into: &mut [u8], _: bool) {
        into.copy_from_slice(from);
        if self.lie == Lie::Frames && from.len() == PAGE {
            let last = core::mem::replace(&mut *self.last.lock().expect("whole"), from.to_vec());
            if last.len() == PAGE {
                into.copy_from_slice(&last);
            }
        }
    }

    unsafe fn free(&self, frames: &[Pfn]) {
        // They are the caller's, who has no reference into them.
        frames.iter().for_each(|&frame| self.poison(frame));
        let keeps = self.lie == Lie::Kept && !self.kept.swap(true, Relaxed);
        // SAFETY: those of the caller, each of them once or never, and no reference into them is left: it says so.
        unsafe { self.frames.free(&frames[usize::from(keeps)..]) };
    }

    fn address(&self, frame: Pfn) -> NonNull<u8> {
        NonNull::from(&self.bytes_of(frame).0).cast()
    }

    fn count(&self, frame: Pfn, state: PageState, change: i32) {
        self.frames.count(frame, state, change);
    }

    fn zones(&self) -> (usize, usize) {
        self.frames.zones()
    }

    fn zone_of(&self, frame: Pfn) -> (usize, usize) {
        self.frames.zone_of(frame)
    }
}

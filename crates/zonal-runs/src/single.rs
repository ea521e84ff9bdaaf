//! Each by itself: what [`Platform`] does by default.

use core::sync::atomic::{AtomicU8, AtomicU32};
use zonal::platform::single::SingleThread;
use zonal::platform::{Direction, Platform};

#[inline(always)]
pub(super) fn fill(bytes: &[AtomicU8], value: u8) {
    SingleThread::fill(bytes, value);
}

#[inline(always)]
pub(super) fn replace(bytes: &[AtomicU8], from: u8, to: u8) -> usize {
    SingleThread::replace_run(bytes, from, to)
}

#[inline(always)]
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "`words` has its own"))]
pub(super) fn write(halves: &[AtomicU32], first: u32, direction: Direction) {
    SingleThread::write_run(halves, first, direction);
}

#[inline(always)]
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "`words` has its own"))]
pub(super) fn is_run(halves: &[AtomicU32], direction: Direction) -> bool {
    SingleThread::is_run(halves, direction)
}

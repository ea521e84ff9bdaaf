//! Eight bytes at once, in plain registers: for kernels, which are built without vectors.

pub(super) use crate::exchange::replace;

use crate::single;
use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};
use zonal::platform::Direction;

/// Bytes of a register.
const WORD: usize = 8;
/// Halves of one.
const HALVES: usize = 2;

#[inline(always)]
pub(super) fn fill(bytes: &[AtomicU8], value: u8) {
    let (words, rest) = bytes.as_chunks::<WORD>();
    let wide = u64::from_ne_bytes([value; WORD]);
    for word in words {
        // SAFETY: the eight bytes at `word` are valid for writes, as atomics are through a shared reference. Other
        // threads access them as atomic bytes only; the processor stores each byte whole, so that what they see
        // is what eight relaxed stores would have them see.
        unsafe {
            asm!("mov qword ptr [{at}], {wide}", at = in(reg) word.as_ptr(), wide = in(reg) wide,
                options(nostack, preserves_flags));
        }
    }
    single::fill(rest, value);
}

/// Two numbers that follow each other, as they lie in memory.
#[inline(always)]
fn pair(first: u32, direction: Direction) -> u64 {
    u64::from(direction.after(first, 1)) << 32 | u64::from(first)
}

#[inline(always)]
pub(super) fn write(halves: &[AtomicU32], first: u32, direction: Direction) {
    let (pairs, rest) = halves.as_chunks::<HALVES>();
    let mut next = first;
    for two in pairs {
        // SAFETY: the two halves at `two` are valid for writes, as atomics are through a shared reference, and each
        // is aligned. Other threads access them as atomic halves only; the processor stores each aligned half
        // whole.
        unsafe {
            asm!("mov qword ptr [{at}], {wide}", at = in(reg) two.as_ptr(),
                wide = in(reg) pair(next, direction), options(nostack, preserves_flags));
        }
        next = direction.after(next, HALVES as u32);
    }
    single::write(rest, next, direction);
}

#[inline(always)]
pub(super) fn is_run(halves: &[AtomicU32], direction: Direction) -> bool {
    let [first, _, ..] = halves else { return single::is_run(halves, direction) };
    let mut next = first.load(Relaxed);
    let (pairs, rest) = halves.as_chunks::<HALVES>();
    let mut other = 0;
    for two in pairs {
        let seen: u64;
        // SAFETY: the two halves at `two` are valid for reads, and each is aligned: the processor loads each of them
        // whole.
        unsafe {
            asm!("mov {seen}, qword ptr [{at}]", at = in(reg) two.as_ptr(), seen = out(reg) seen,
                options(nostack, preserves_flags, readonly));
        }
        other |= seen ^ pair(next, direction);
        next = direction.after(next, HALVES as u32);
    }
    other == 0 && rest.first().is_none_or(|half| half.load(Relaxed) == next)
}

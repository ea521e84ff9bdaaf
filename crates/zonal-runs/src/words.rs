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
/// Halves that are written or compared at once, by four registers' worth.
const AT_ONCE: usize = 4 * HALVES;

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

/// What makes the next two numbers of two that do not [go round](chunks): to be added to both at once, modulo 2^64.
#[inline(always)]
fn step(direction: Direction) -> u64 {
    const BOTH: u64 = (HALVES as u64) << 32 | HALVES as u64;
    match direction {
        Direction::Up => BOTH,
        Direction::Down => BOTH.wrapping_neg(),
    }
}

/// The chunks of halves that hold numbers from `first` on, and the rest: all of them if the numbers go round, where
/// something is carried from one to its neighbour.
#[inline(always)]
fn chunks(
    halves: &[AtomicU32],
    first: u32,
    direction: Direction,
) -> (&[[AtomicU32; AT_ONCE]], &[AtomicU32]) {
    let before_end = match direction {
        Direction::Up => u32::MAX - first,
        Direction::Down => first,
    };
    if halves.len() <= before_end as usize { halves.as_chunks() } else { (&[], halves) }
}

#[inline(always)]
pub(super) fn write(halves: &[AtomicU32], first: u32, direction: Direction) {
    let (chunks, rest) = chunks(halves, first, direction);
    let (mut wide, more) = (pair(first, direction), step(direction));
    for chunk in chunks {
        // SAFETY: the eight halves at `chunk` are valid for writes, as atomics are through a shared reference, and
        // each is aligned. Other threads access them as atomic halves only; the processor stores each aligned half
        // whole.
        unsafe {
            asm!("mov qword ptr [{at}], {wide}", "add {wide}, {more}",
                "mov qword ptr [{at} + 8], {wide}", "add {wide}, {more}",
                "mov qword ptr [{at} + 16], {wide}", "add {wide}, {more}",
                "mov qword ptr [{at} + 24], {wide}", "add {wide}, {more}",
                at = in(reg) chunk.as_ptr(), wide = inout(reg) wide, more = in(reg) more,
                options(nostack));
        }
    }
    let mut next = wide as u32;
    for half in rest {
        half.store(next, Relaxed);
        next = direction.after(next, 1);
    }
}

// Not always: a kernel that is built for size has it once.
#[inline]
pub(super) fn is_run(halves: &[AtomicU32], direction: Direction) -> bool {
    let first = halves.first().map_or(0, |half| half.load(Relaxed));
    let (chunks, rest) = chunks(halves, first, direction);
    let (mut wanted, more) = (pair(first, direction), step(direction));
    for chunk in chunks {
        let same: u8;
        // SAFETY: the eight halves at `chunk` are valid for reads, and each is aligned: the processor loads each of
        // them whole. The jumps stay inside.
        unsafe {
            asm!("cmp qword ptr [{at}], {wanted}", "jne 2f", "add {wanted}, {more}",
                "cmp qword ptr [{at} + 8], {wanted}", "jne 2f", "add {wanted}, {more}",
                "cmp qword ptr [{at} + 16], {wanted}", "jne 2f", "add {wanted}, {more}",
                "cmp qword ptr [{at} + 24], {wanted}", "2:", "sete {same}",
                at = in(reg) chunk.as_ptr(), wanted = inout(reg) wanted, more = in(reg) more,
                same = out(reg_byte) same, options(nostack, readonly));
        }
        if same == 0 {
            return false;
        }
        wanted = wanted.wrapping_add(more);
    }
    let mut next = wanted as u32;
    for half in rest {
        if half.load(Relaxed) != next {
            return false;
        }
        next = direction.after(next, 1);
    }
    true
}

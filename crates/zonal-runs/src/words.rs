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

/// What makes the next two numbers of two, as long as they [go on](goes_on): modulo 2^64 to be added to both at once.
#[inline(always)]
fn step(direction: Direction) -> u64 {
    const BOTH: u64 = (HALVES as u64) << 32 | HALVES as u64;
    match direction {
        Direction::Up => BOTH,
        Direction::Down => BOTH.wrapping_neg(),
    }
}

/// Whether `len` numbers from `first` on do not go round, so that nothing is carried from one to its neighbour.
#[inline(always)]
fn goes_on(first: u32, len: usize, direction: Direction) -> bool {
    match direction {
        Direction::Up => len <= (u32::MAX - first) as usize,
        Direction::Down => len <= first as usize,
    }
}

#[inline(always)]
pub(super) fn write(halves: &[AtomicU32], first: u32, direction: Direction) {
    if !goes_on(first, halves.len(), direction) {
        return write_round(halves, first, direction);
    }
    let (chunks, rest) = halves.as_chunks::<AT_ONCE>();
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
    single::write(rest, wide as u32, direction);
}

#[cold]
#[inline(never)]
fn write_round(halves: &[AtomicU32], first: u32, direction: Direction) {
    single::write(halves, first, direction);
}

#[inline(always)]
pub(super) fn is_run(halves: &[AtomicU32], direction: Direction) -> bool {
    let [first, _, ..] = halves else { return single::is_run(halves, direction) };
    let first = first.load(Relaxed);
    if !goes_on(first, halves.len(), direction) {
        return is_round(halves, direction);
    }
    let (chunks, rest) = halves.as_chunks::<AT_ONCE>();
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
    rest.first().is_none_or(|half| half.load(Relaxed) == wanted as u32)
        && single::is_run(rest, direction)
}

#[cold]
#[inline(never)]
fn is_round(halves: &[AtomicU32], direction: Direction) -> bool {
    single::is_run(halves, direction)
}

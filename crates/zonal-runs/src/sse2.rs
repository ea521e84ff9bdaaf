//! Sixteen bytes at once, by SSE2.

pub(super) use crate::exchange::replace;

use crate::single;
use core::arch::asm;
use core::arch::x86_64::__m128i;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};
use zonal::platform::Direction;

/// Bytes of a register.
const WIDE: usize = 16;
/// Halves of one.
const HALVES: usize = 4;

#[inline(always)]
pub(super) fn fill(bytes: &[AtomicU8], value: u8) {
    let (chunks, rest) = bytes.as_chunks::<WIDE>();
    let wide = vector::all_bytes(value);
    for chunk in chunks {
        // SAFETY: the 16 bytes at `chunk` are valid for writes, as atomics are through a shared
        // reference. Other threads access them as atomic bytes only; the processor stores each byte
        // whole, so that what they see is what sixteen relaxed stores would have them see.
        unsafe {
            asm!("movdqu xmmword ptr [{at}], {wide}", at = in(reg) chunk.as_ptr(),
                wide = in(xmm_reg) wide, options(nostack, preserves_flags));
        }
    }
    single::fill(rest, value);
}

/// The first numbers of a run, and what is to be added for the next.
#[inline(always)]
fn numbers(first: u32, direction: Direction) -> (__m128i, __m128i) {
    let numbers = [0, 1, 2, 3].map(|step| direction.after(first, step));
    (vector::halves(numbers), vector::halves([direction.after(0, HALVES as u32); HALVES]))
}

#[inline(always)]
pub(super) fn write(halves: &[AtomicU32], first: u32, direction: Direction) {
    let (chunks, rest) = halves.as_chunks::<HALVES>();
    let (mut wide, more) = numbers(first, direction);
    for chunk in chunks {
        // SAFETY: the four halves at `chunk` are valid for writes, as atomics are through a shared
        // reference, and each is aligned. Other threads access them as atomic halves only; the
        // processor stores each aligned half whole.
        unsafe {
            asm!("movdqu xmmword ptr [{at}], {wide}", at = in(reg) chunk.as_ptr(),
                wide = in(xmm_reg) wide, options(nostack, preserves_flags));
        }
        wide = vector::add(wide, more);
    }
    let before = (chunks.len() * HALVES) as u32;
    single::write(rest, direction.after(first, before), direction);
}

#[inline(always)]
pub(super) fn is_run(halves: &[AtomicU32], direction: Direction) -> bool {
    let [first, _, _, _, ..] = halves else { return single::is_run(halves, direction) };
    let first = first.load(Relaxed);
    let (chunks, rest) = halves.as_chunks::<HALVES>();
    let (mut wanted, more) = numbers(first, direction);
    let mut other = vector::halves([0; HALVES]);
    for chunk in chunks {
        let seen: __m128i;
        // SAFETY: the four halves at `chunk` are valid for reads, and each is aligned: the processor
        // loads each of them whole.
        unsafe {
            asm!("movdqu {seen}, xmmword ptr [{at}]", at = in(reg) chunk.as_ptr(),
                seen = out(xmm_reg) seen, options(nostack, preserves_flags, readonly));
        }
        other = vector::or(other, vector::xor(seen, wanted));
        wanted = vector::add(wanted, more);
    }
    let before = (chunks.len() * HALVES) as u32;
    vector::is_zero(other) && follow(rest, direction.after(first, before), direction)
}

/// Whether they are numbers that follow each other from `first` on.
#[inline(always)]
fn follow(halves: &[AtomicU32], first: u32, direction: Direction) -> bool {
    halves.first().is_none_or(|half| half.load(Relaxed) == first)
        && single::is_run(halves, direction)
}

/// What is needed of the vectors that such a processor has.
mod vector {
    use core::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_cmpeq_epi32, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi32,
        _mm_set1_epi8, _mm_setzero_si128, _mm_xor_si128,
    };

    #[inline(always)]
    pub(super) fn all_bytes(value: u8) -> __m128i {
        // SAFETY: the target has SSE2.
        unsafe { _mm_set1_epi8(value.cast_signed()) }
    }

    #[inline(always)]
    pub(super) fn halves(values: [u32; 4]) -> __m128i {
        let [a, b, c, d] = values.map(u32::cast_signed);
        // SAFETY: the target has SSE2.
        unsafe { _mm_set_epi32(d, c, b, a) }
    }

    #[inline(always)]
    pub(super) fn add(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: the target has SSE2.
        unsafe { _mm_add_epi32(a, b) }
    }

    #[inline(always)]
    pub(super) fn or(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: the target has SSE2.
        unsafe { _mm_or_si128(a, b) }
    }

    #[inline(always)]
    pub(super) fn xor(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: the target has SSE2.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    pub(super) fn is_zero(value: __m128i) -> bool {
        // SAFETY: the target has SSE2.
        let zero = unsafe { _mm_setzero_si128() };
        // SAFETY: the target has SSE2.
        let equal = unsafe { _mm_cmpeq_epi32(value, zero) };
        // SAFETY: the target has SSE2.
        unsafe { _mm_movemask_epi8(equal) == 0xffff }
    }
}

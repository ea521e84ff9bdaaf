//! Several atomics that lie side by side, at once.
//!
//! On x86-64 the instructions move 16 bytes, or exchange eight; elsewhere, and under a checker that knows
//! single atomics only (loom, Miri), each is accessed by itself. What the caller sees is the same: no
//! access of another CPU to one of them meets half of a change, because each lies within one of those
//! that the processor makes by whole bytes (or whole halves, which are aligned), and an exchange is a
//! locked one.
//!
//! ```
//! use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
//! let bytes: [AtomicU8; 40] = std::array::from_fn(|_| AtomicU8::new(1));
//! bytes[30].store(7, Relaxed);
//! assert_eq!(zonal_host::runs::replace(&bytes, 1, 2), 30, "up to one that is something else");
//! assert_eq!((bytes[29].load(Relaxed), bytes[31].load(Relaxed)), (2, 1));
//! ```

use std::sync::atomic::{AtomicU8, AtomicU32};
use zonal::platform::Direction;

#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
use wide as way;

#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
use single as way;

/// Writes `value` to each, as by relaxed stores in any order.
#[inline(always)]
pub fn fill(bytes: &[AtomicU8], value: u8) {
    way::fill(bytes, value);
}

/// Replaces `from` by `to` in each, the first one first, up to one that is something else; returns how many.
/// Each is replaced as by a relaxed compare-exchange.
#[inline(always)]
#[must_use]
pub fn replace(bytes: &[AtomicU8], from: u8, to: u8) -> usize {
    way::replace(bytes, from, to)
}

/// Writes numbers that follow each other, from `first` on, as by relaxed stores in any order.
#[inline(always)]
pub fn write(halves: &[AtomicU32], first: u32, direction: Direction) {
    way::write(halves, first, direction);
}

/// Whether they are numbers that follow each other, as by relaxed loads in any order.
#[inline(always)]
#[must_use]
pub fn is_run(halves: &[AtomicU32], direction: Direction) -> bool {
    way::is_run(halves, direction)
}

/// Each by itself: what [`Platform`](zonal::platform::Platform) does by default.
mod single {
    use super::{AtomicU8, AtomicU32, Direction};
    use zonal::platform::Platform;
    use zonal::platform::single::SingleThread;

    #[inline(always)]
    pub(super) fn fill(bytes: &[AtomicU8], value: u8) {
        SingleThread::fill(bytes, value);
    }

    #[inline(always)]
    pub(super) fn replace(bytes: &[AtomicU8], from: u8, to: u8) -> usize {
        SingleThread::replace_run(bytes, from, to)
    }

    #[inline(always)]
    pub(super) fn write(halves: &[AtomicU32], first: u32, direction: Direction) {
        SingleThread::write_run(halves, first, direction);
    }

    #[inline(always)]
    pub(super) fn is_run(halves: &[AtomicU32], direction: Direction) -> bool {
        SingleThread::is_run(halves, direction)
    }
}

/// Several at once.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
mod wide {
    use super::{AtomicU8, AtomicU32, Direction, single, sse2};
    use core::arch::asm;
    use core::arch::x86_64::__m128i;
    use std::sync::atomic::Ordering::Relaxed;

    /// Bytes of a register.
    const WIDE: usize = 16;
    /// Halves of one.
    const HALVES: usize = 4;
    /// Bytes that are exchanged at once.
    const WORD: usize = 8;

    #[inline(always)]
    pub(super) fn fill(bytes: &[AtomicU8], value: u8) {
        let (chunks, rest) = bytes.as_chunks::<WIDE>();
        let wide = sse2::all_bytes(value);
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

    #[inline(always)]
    pub(super) fn replace(bytes: &[AtomicU8], from: u8, to: u8) -> usize {
        // By steps of the address: an exchange that crosses a cache line stops all CPUs.
        let before = bytes.as_ptr().align_offset(WORD).min(bytes.len());
        let (first, bytes) = bytes.split_at(before);
        let mut done = single::replace(first, from, to);
        if done < before {
            return done;
        }
        let (words, _) = bytes.as_chunks::<WORD>();
        for word in words {
            if !exchange(word, from, to) {
                break;
            }
            done += WORD;
        }
        done + single::replace(&bytes[done - before..], from, to)
    }

    /// Replaces all eight, or changes none. They lie at a multiple of eight.
    #[inline(always)]
    fn exchange(word: &[AtomicU8; WORD], from: u8, to: u8) -> bool {
        let (from, to) = (u64::from_ne_bytes([from; WORD]), u64::from_ne_bytes([to; WORD]));
        let seen: u64;
        // SAFETY: the eight bytes at `word` are valid for reads and writes, as atomics are through a shared
        // reference, and within a cache line. Other threads access them as atomic bytes only, with which
        // a locked instruction is in one order: it is what eight compare-exchanges at one instant would
        // be.
        unsafe {
            asm!("lock cmpxchg qword ptr [{at}], {to}", at = in(reg) word.as_ptr(), to = in(reg) to,
                inout("rax") from => seen, options(nostack));
        }
        seen == from
    }

    /// The first numbers of a run, and what is to be added for the next.
    #[inline(always)]
    fn numbers(first: u32, direction: Direction) -> (__m128i, __m128i) {
        let numbers = [0, 1, 2, 3].map(|step| direction.after(first, step));
        (sse2::halves(numbers), sse2::halves([direction.after(0, HALVES as u32); HALVES]))
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
            wide = sse2::add(wide, more);
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
        let mut other = sse2::halves([0; HALVES]);
        for chunk in chunks {
            let seen: __m128i;
            // SAFETY: the four halves at `chunk` are valid for reads, and each is aligned: the processor
            // loads each of them whole.
            unsafe {
                asm!("movdqu {seen}, xmmword ptr [{at}]", at = in(reg) chunk.as_ptr(),
                    seen = out(xmm_reg) seen, options(nostack, preserves_flags, readonly));
            }
            other = sse2::or(other, sse2::xor(seen, wanted));
            wanted = sse2::add(wanted, more);
        }
        let before = (chunks.len() * HALVES) as u32;
        sse2::is_zero(other) && follow(rest, direction.after(first, before), direction)
    }

    /// Whether they are numbers that follow each other from `first` on.
    #[inline(always)]
    fn follow(halves: &[AtomicU32], first: u32, direction: Direction) -> bool {
        halves.first().is_none_or(|half| half.load(Relaxed) == first)
            && single::is_run(halves, direction)
    }
}

/// What is needed of the vectors that every x86-64 processor has.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
mod sse2 {
    use core::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_cmpeq_epi32, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi32,
        _mm_set1_epi8, _mm_setzero_si128, _mm_xor_si128,
    };

    #[inline(always)]
    pub(super) fn all_bytes(value: u8) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_set1_epi8(value.cast_signed()) }
    }

    #[inline(always)]
    pub(super) fn halves(values: [u32; 4]) -> __m128i {
        let [a, b, c, d] = values.map(u32::cast_signed);
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_set_epi32(d, c, b, a) }
    }

    #[inline(always)]
    pub(super) fn add(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_add_epi32(a, b) }
    }

    #[inline(always)]
    pub(super) fn or(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_or_si128(a, b) }
    }

    #[inline(always)]
    pub(super) fn xor(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    pub(super) fn is_zero(value: __m128i) -> bool {
        // SAFETY: SSE2 is part of x86-64.
        let zero = unsafe { _mm_setzero_si128() };
        // SAFETY: SSE2 is part of x86-64.
        let equal = unsafe { _mm_cmpeq_epi32(value, zero) };
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_movemask_epi8(equal) == 0xffff }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Down, Up};
    use std::sync::atomic::Ordering::Relaxed;

    /// Slices of all lengths and places: both ways do the same.
    #[test]
    fn several_at_once_are_as_each_by_itself() {
        let bytes = || -> [AtomicU8; 64] { std::array::from_fn(|_| AtomicU8::new(3)) };
        let halves = || -> [AtomicU32; 64] { std::array::from_fn(|_| AtomicU32::new(0)) };
        for (start, len) in (0..24).flat_map(|start| (0..40).map(move |len| (start, len))) {
            let part = start..start + len;
            let both = [bytes(), bytes()];
            fill(&both[0][part.clone()], 9);
            single::fill(&both[1][part.clone()], 9);
            assert_eq!(read(&both[0]), read(&both[1]), "{part:?}");
            for other in part.clone().chain([63]) {
                both.iter().for_each(|bytes| bytes[other].store(1, Relaxed));
                let done = replace(&both[0][part.clone()], 9, 5);
                assert_eq!(done, single::replace(&both[1][part.clone()], 9, 5));
                assert_eq!(read(&both[0]), read(&both[1]), "{part:?}, {other} is another");
                both.iter().for_each(|bytes| single::fill(&bytes[part.clone()], 9));
            }
            for (direction, first) in [(Up, u32::MAX - 7), (Down, 7), (Up, 40), (Down, 900)] {
                let both = [halves(), halves()];
                write(&both[0][part.clone()], first, direction);
                single::write(&both[1][part.clone()], first, direction);
                assert!(
                    both[0].iter().zip(&both[1]).all(|(a, b)| a.load(Relaxed) == b.load(Relaxed))
                );
                let run = &both[0][part.clone()];
                assert!(is_run(run, direction), "{part:?}");
                for other in run.iter().skip(1) {
                    let before = other.swap(77_777, Relaxed);
                    assert!(!is_run(run, direction), "{part:?}");
                    other.store(before, Relaxed);
                }
            }
        }
    }

    fn read(bytes: &[AtomicU8]) -> Vec<u8> {
        bytes.iter().map(|byte| byte.load(Relaxed)).collect()
    }

    /// Of two threads that replace one byte at the same instant, one by several at once and one alone, one is
    /// told that it did.
    #[test]
    fn a_byte_is_replaced_once() {
        let bytes: Vec<AtomicU8> = (0..4096).map(|_| AtomicU8::new(1)).collect();
        let (alone, at_once) = std::thread::scope(|scope| {
            let alone = scope.spawn(|| {
                let replaces =
                    |byte: &&AtomicU8| single::replace(std::slice::from_ref(byte), 1, 2) == 1;
                bytes.iter().rev().filter(replaces).count()
            });
            let at_once = bytes.chunks(32).map(|run| replace(run, 1, 2)).sum::<usize>();
            (alone.join().expect("it counts"), at_once)
        });
        let replaced = bytes.iter().filter(|byte| byte.load(Relaxed) == 2).count();
        assert_eq!(alone + at_once, replaced, "{alone} alone, {at_once} at once");
    }
}

//! Bytes of pages that are in no cache of the CPU: fetched before they are needed.
//!
//! A CPU reads ahead by itself once it sees where a program goes, and a page is over when it has seen it. Lines that it
//! is told of at once come to its first level, which has places for some twenty that are on their way; those that it
//! is told of for the second level wait there, out of the way of what the program reads meanwhile. Which of it pays
//! depends on the CPU's maker ([`told_of_lines`]).

use crate::frames::PAGE;
use core::ops::Range;
use core::ptr;

const LINE: usize = 64;
/// Bytes of a register that a copy goes through.
#[cfg(target_arch = "x86_64")]
const REGISTER: usize = 32;
/// Lines that a copy is behind what it has fetched.
const BEHIND: usize = 48;
/// Up to which line of a page it is fetched for the first level, and then for the second, while its slot is looked up:
/// where the CPU is [told of lines](told_of_lines).
const TOLD: [usize; 2] = [2, BEHIND];
/// The same where it is not.
const UNTOLD: [usize; 2] = [8, 8];

/// These bytes of the page at `page` will be read, if the guess is right that it is this page: it need not be one.
#[inline(always)]
pub(crate) fn expect(page: u64, bytes: Range<usize>) {
    // No access is made by it, so it may be no memory of this program.
    let at = ptr::without_provenance::<u8>(page as usize);
    let [first, second] = if told_of_lines() { TOLD } else { UNTOLD };
    let upto = |lines: usize| bytes.end.min(bytes.start + lines * LINE);
    let mut offset = bytes.start;
    while offset < upto(first) {
        soon(at.wrapping_add(offset));
        offset += LINE;
    }
    while offset < upto(second) {
        later(at.wrapping_add(offset));
        offset += LINE;
    }
}

/// Copies bytes of a page, as many as there is room for.
///
/// # Panics
/// If there is room for more, or less.
#[inline(always)]
pub(crate) fn copy(from: &[u8], into: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if let (Ok(page), Ok(into)) =
        (<&[u8; PAGE]>::try_from(from), <&mut [u8; PAGE]>::try_from(&mut *into))
        && told_of_lines()
        && std::is_x86_feature_detected!("avx2")
    {
        // SAFETY: the CPU has what it is compiled for.
        unsafe { copy_page(page, into) };
        return;
    }
    into.copy_from_slice(from);
}

/// Whether a copy is faster where the CPU is told of the lines that it will come to. AMD's is (Zen 4), as `sse4a` tells;
/// Intel's reads a page ahead by itself, and what it is told of for the second level comes later than that.
#[inline(always)]
fn told_of_lines() -> bool {
    #[cfg(target_arch = "x86_64")]
    let told = !cfg!(miri) && std::is_x86_feature_detected!("sse4a");
    #[cfg(not(target_arch = "x86_64"))]
    let told = false;
    told
}

/// A whole page, with lines that the copy will come to on their way to the second level.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn copy_page(from: &[u8; PAGE], into: &mut [u8; PAGE]) {
    let at = from.as_ptr();
    // A register goes to a multiple of its size, since one that spans two lines takes two turns. So the first line and the
    // last are copied where they are, and what is between them over a part of both.
    let skipped = into.as_ptr().align_offset(REGISTER);
    let (first, last) = (0..LINE, PAGE - LINE..PAGE);
    let whole = skipped..skipped + PAGE - LINE;
    copy_lines(&from[first.clone()], &mut into[first], |_| ());
    copy_lines(&from[whole.clone()], &mut into[whole], |line| {
        if line + BEHIND < PAGE / LINE {
            later(at.wrapping_add((line + BEHIND) * LINE));
        }
    });
    copy_lines(&from[last.clone()], &mut into[last], |_| ());
    // The compiler does not know what the lines were copied by: code for 16 bytes is slow after code for 32 without it.
    core::arch::x86_64::_mm256_zeroupper();
}

/// Whole lines, as counted from the begin of `from`; `before` is told of each.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn copy_lines(from: &[u8], into: &mut [u8], before: impl Fn(usize)) {
    let ((from, _), (into, _)) = (from.as_chunks::<LINE>(), into.as_chunks_mut::<LINE>());
    for (line, (from, into)) in from.iter().zip(into).enumerate() {
        before(line);
        copy_line(from, into);
    }
}

/// A line, by two registers of 32 bytes. In assembly, since a loop over anything that the compiler knows for a copy
/// becomes one call that copies all, after all lines were asked for.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn copy_line(from: &[u8; LINE], into: &mut [u8; LINE]) {
    // SAFETY: it reads the 64 bytes that `from` is and writes the 64 that `into` is, wherever they begin.
    unsafe {
        core::arch::asm!(
            "vmovdqu {low}, [{from}]",
            "vmovdqu {high}, [{from} + 32]",
            "vmovdqu [{into}], {low}",
            "vmovdqu [{into} + 32], {high}",
            from = in(reg) from.as_ptr(),
            into = in(reg) into.as_mut_ptr(),
            low = out(ymm_reg) _,
            high = out(ymm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// The line at this address is to be in the first level.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn soon(at: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every x86-64 CPU has the instruction, and it only hints: it accesses nothing and never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
fn soon(_: *const u8) {}

#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
fn later(_: *const u8) {}

/// The line at this address is to be in the second level.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn later(at: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: as for `soon`.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    type Way = fn(&[u8], &mut [u8]);

    /// The way of this CPU; and by lines that it is told of, if it can, whichever maker's it is.
    fn ways() -> vec::Vec<Way> {
        let mut ways: vec::Vec<Way> = vec![copy];
        #[cfg(target_arch = "x86_64")]
        if !cfg!(miri) && std::is_x86_feature_detected!("avx2") {
            ways.push(|from, into| match (from.try_into(), (&mut *into).try_into()) {
                // SAFETY: the CPU has what it is compiled for.
                (Ok(from), Ok(into)) => unsafe { copy_page(from, into) },
                _ => into.copy_from_slice(from),
            });
        }
        ways
    }

    #[test]
    fn a_copy_has_the_bytes_of_the_page_and_writes_no_others() {
        let bytes = |at: usize| (at * 7 + at / 251) as u8;
        let page: vec::Vec<u8> = (0..PAGE).map(bytes).collect();
        for len in [0, 1, 63, 64, PAGE - 1, PAGE] {
            // At places that are aligned to nothing, as a reader's are.
            for before in [0, 1, 17, 64] {
                for by in ways() {
                    let mut there = vec![0xA5; before + len + 64];
                    by(&page[..len], &mut there[before..before + len]);
                    assert_eq!(there[before..before + len], page[..len], "{len} bytes at {before}");
                    let around = there[..before].iter().chain(&there[before + len..]);
                    let others = around.into_iter().all(|&byte| byte == 0xA5);
                    assert!(others, "{len} bytes at {before}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "length")]
    fn a_page_is_not_copied_to_where_less_fits() {
        copy(&[0; PAGE], &mut [0; PAGE - 1]);
    }
}

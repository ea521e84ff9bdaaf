//! Bytes of pages that are in no cache of the CPU: fetched before they are needed.
//!
//! A CPU reads ahead by itself once it sees where a program goes, and a page is over when it has seen it. Lines that it
//! is told of at once come to its first level, which has places for some twenty that are on their way; those that it
//! is told of for the second level wait there, out of the way of what the program reads meanwhile. Which of it pays
//! depends on the CPU's maker ([`told_of_lines`]).

use core::ops::Range;
use core::ptr;

pub(crate) const LINE: usize = 64;
/// Lines that a copy is behind what it has fetched.
pub(crate) const BEHIND: usize = 48;
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

/// Whether a copy is faster where the CPU is told of the lines that it will come to. AMD's is (Zen 4), as `sse4a` tells;
/// Intel's reads a page ahead by itself, and what it is told of for the second level comes later than that.
#[inline(always)]
pub(crate) fn told_of_lines() -> bool {
    #[cfg(target_arch = "x86_64")]
    let told = !cfg!(miri) && std::is_x86_feature_detected!("sse4a");
    #[cfg(not(target_arch = "x86_64"))]
    let told = false;
    told
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
pub(crate) fn later(_: *const u8) {}

/// The line at this address is to be in the second level.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub(crate) fn later(at: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: as for `soon`.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
}

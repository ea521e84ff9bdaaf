//! Copies of whole pages: by the way that is fastest on this CPU, for bytes that are in a cache of it and for such as
//! are not.
//!
//! | CPU | bytes that are near | others |
//! |---|---|---|
//! | AMD's, with registers of 32 bytes | `memcpy` | by these registers, behind lines that are [asked for](crate::fetch) |
//! | another with registers of 64 bytes that it is not slower for | by these, to whole lines | by these, from whole lines |
//! | any other | `memcpy` | `memcpy` |

#[cfg(target_arch = "x86_64")]
use crate::fetch::{BEHIND, LINE, later, told_of_lines};
#[cfg(any(target_arch = "x86_64", test))]
use crate::frames::PAGE;

/// Bytes of a register that a copy behind its lines goes through.
#[cfg(target_arch = "x86_64")]
const REGISTER: usize = 32;

/// Copies bytes of a page, as many as there is room for. `near`: they are in a cache of the CPU.
///
/// # Panics
/// If there is room for more, or less.
#[inline(always)]
pub(crate) fn copy(from: &[u8], into: &mut [u8], near: bool) {
    #[cfg(target_arch = "x86_64")]
    if let (Ok(page), Ok(into)) =
        (<&[u8; PAGE]>::try_from(from), <&mut [u8; PAGE]>::try_from(&mut *into))
    {
        match told_of_lines() {
            true if !near && std::is_x86_feature_detected!("avx2") => {
                // SAFETY: the CPU has what it is compiled for.
                unsafe { copy_behind(page, into) };
                return;
            }
            false if has_wide() => {
                // SAFETY: the CPU has the registers.
                unsafe { copy_wide(page, into, near) };
                return;
            }
            _ => {}
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = near;
    into.copy_from_slice(from);
}

/// Whether there are registers of 64 bytes, of a generation whose clock does not go down for them: the first that has
/// `avx512vbmi` is the first of which that holds.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_wide() -> bool {
    !cfg!(miri)
        && std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512vbmi")
}

/// A whole page by registers of 64 bytes. A load of bytes that are far waits twice if it spans two lines, and a store of
/// bytes that are near takes two turns: whole lines are read in the first case, and written in the second.
///
/// # Safety
/// The CPU has [these registers](has_wide).
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_wide(from: &[u8; PAGE], into: &mut [u8; PAGE], near: bool) {
    let skipped = if near { into.as_ptr().align_offset(LINE) } else { 0 };
    assert!(skipped < LINE, "a pointer to bytes can be aligned");
    // SAFETY: it reads 64 bytes at 0, at 4032, and at `skipped` + 64 × n for n from 0 to 62, of the 4096 that `from` is, and
    // writes as many at the same places of the 4096 that `into` is: the loop takes 3 at a time and begins while `rcx` is less
    // than 4032, so 21 times, as `skipped` is less than 64, and ends at `skipped` + 4032 at most. Registers that calls keep are
    // not written, all others are said to be, and the caller says that the CPU has them.
    unsafe {
        core::arch::asm!(
            "vmovdqu64 zmm16, [rsi]",
            "vmovdqu64 [rdi], zmm16",
            "2:",
            "vmovdqu64 zmm16, [rsi + rcx]",
            "vmovdqu64 zmm17, [rsi + rcx + 64]",
            "vmovdqu64 zmm18, [rsi + rcx + 128]",
            "vmovdqu64 [rdi + rcx], zmm16",
            "vmovdqu64 [rdi + rcx + 64], zmm17",
            "vmovdqu64 [rdi + rcx + 128], zmm18",
            "add rcx, 192",
            "cmp rcx, 4032",
            "jb 2b",
            // The last line where it is, over what was copied of it, as the first was.
            "vmovdqu64 zmm16, [rsi + 4032]",
            "vmovdqu64 [rdi + 4032], zmm16",
            in("rsi") from.as_ptr(),
            in("rdi") into.as_mut_ptr(),
            inout("rcx") skipped => _,
            // Registers of 64 bytes by their names: 1.88 has none for them. None of these needs `vzeroupper`.
            clobber_abi("sysv64"),
            options(nostack),
        );
    }
}

/// A whole page, with lines that the copy will come to on their way to the second level.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn copy_behind(from: &[u8; PAGE], into: &mut [u8; PAGE]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    type Way = fn(&[u8], &mut [u8]);

    /// The ways of this CPU, and those that it could go, whichever maker's it is.
    fn ways() -> vec::Vec<Way> {
        let mut ways: vec::Vec<Way> =
            vec![|from, into| copy(from, into, false), |from, into| copy(from, into, true)];
        #[cfg(target_arch = "x86_64")]
        if !cfg!(miri) && std::is_x86_feature_detected!("avx2") {
            ways.push(|from, into| {
                pages(from, into, |from, into| {
                    // SAFETY: the CPU has what it is compiled for.
                    unsafe { copy_behind(from, into) };
                });
            });
        }
        #[cfg(target_arch = "x86_64")]
        if has_wide() {
            ways.push(|from, into| {
                pages(from, into, |from, into| {
                    // SAFETY: the CPU has the registers.
                    unsafe { copy_wide(from, into, false) };
                });
            });
            ways.push(|from, into| {
                pages(from, into, |from, into| {
                    // SAFETY: the CPU has the registers.
                    unsafe { copy_wide(from, into, true) };
                });
            });
        }
        ways
    }

    /// Copies by `way` what is a whole page.
    #[cfg(target_arch = "x86_64")]
    fn pages(from: &[u8], into: &mut [u8], way: impl Fn(&[u8; PAGE], &mut [u8; PAGE])) {
        match (from.try_into(), (&mut *into).try_into()) {
            (Ok(from), Ok(into)) => way(from, into),
            _ => into.copy_from_slice(from),
        }
    }

    #[test]
    fn a_copy_has_the_bytes_of_the_page_and_writes_no_others() {
        let bytes = |at: usize| (at * 7 + at / 251) as u8;
        let page: vec::Vec<u8> = (0..PAGE).map(bytes).collect();
        for len in [0, 1, 63, 64, PAGE - 1, PAGE] {
            // At places that are aligned to nothing, as a reader's are.
            for before in [0, 1, 16, 17, 63, 64] {
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
        copy(&[0; PAGE], &mut [0; PAGE - 1], false);
    }
}

//! Eight bytes exchanged at once.

use crate::single;
use core::arch::asm;
use core::sync::atomic::AtomicU8;

/// Bytes that are exchanged at once.
const WORD: usize = 8;

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

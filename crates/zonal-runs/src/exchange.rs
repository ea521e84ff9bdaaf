//! Eight bytes exchanged at once.

use crate::single;
use core::arch::asm;
use core::sync::atomic::AtomicU8;

/// Bytes that are exchanged at once.
const WORD: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;

#[inline(always)]
pub(super) fn replace(bytes: &[AtomicU8], from: u8, to: u8) -> usize {
    // An exchange that crosses a cache line stops all CPUs.
    if bytes.len() <= LINE - bytes.as_ptr().addr() % LINE {
        replace_in_line(bytes, from, to)
    } else {
        replace_in_lines(bytes, from, to)
    }
}

/// The same of bytes of one cache line.
#[inline(always)]
fn replace_in_line(bytes: &[AtomicU8], from: u8, to: u8) -> usize {
    let (words, rest) = bytes.as_chunks::<WORD>();
    for (word, done) in words.iter().zip((0..).step_by(WORD)) {
        if !exchange(word, from, to) {
            let replaced = single::replace(word, from, to);
            // All of them if another thread has written `from` to the one that differed: then the next word is
            // looked at as well.
            if replaced < WORD {
                return done + replaced;
            }
        }
    }
    bytes.len() - rest.len() + single::replace(rest, from, to)
}

/// The same of those of several.
#[inline(never)]
fn replace_in_lines(bytes: &[AtomicU8], from: u8, to: u8) -> usize {
    let (mut done, mut rest) = (0, bytes);
    while !rest.is_empty() {
        let (line, others) = rest.split_at(rest.len().min(LINE - rest.as_ptr().addr() % LINE));
        let replaced = replace_in_line(line, from, to);
        done += replaced;
        if replaced < line.len() {
            break;
        }
        rest = others;
    }
    done
}

/// Replaces all eight, or changes none. They lie within a cache line.
#[inline(always)]
fn exchange(word: &[AtomicU8; WORD], from: u8, to: u8) -> bool {
    let (from, to) = (u64::from_ne_bytes([from; WORD]), u64::from_ne_bytes([to; WORD]));
    let seen: u64;
    // SAFETY: the eight bytes at `word` are valid for reads and writes, as atomics are through a shared
    // reference, and within a cache line, where the instruction needs no alignment. Other threads access them as
    // atomic bytes only, with which a locked instruction is in one order: it is what eight compare-exchanges at
    // one instant would be.
    unsafe {
        asm!("lock cmpxchg qword ptr [{at}], {to}", at = in(reg) word.as_ptr(), to = in(reg) to,
            inout("rax") from => seen, options(nostack));
    }
    seen == from
}

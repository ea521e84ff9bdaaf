//! Doors that are kept across calls to a store, where no lock may be held.

use crate::host::Host;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use zonal::platform::AtomicWord;

/// One who wants to be alone. Others come in after it, so that those who share do not keep it out for ever.
const WANTS: u64 = 1 << 32;
/// All of these.
const WANTED: u64 = CLOSED - WANTS;
const CLOSED: u64 = 1 << 62;
const WAITERS: u64 = 1 << 63;

/// Many may be inside, or one alone. A thread that is inside must not come in once more.
pub(crate) struct Gate<H: Host> {
    /// How many are inside, how many want to be alone, and the flags.
    word: H::Word,
    /// Where the host lets threads wait.
    place: usize,
}

/// Being inside, until dropped; by a panic too.
pub(crate) struct Inside<'a, H: Host> {
    gate: &'a Gate<H>,
    host: &'a H,
    /// What was added.
    part: u64,
}

impl<H: Host> Gate<H> {
    pub(crate) fn new(place: usize) -> Self {
        Self { word: H::Word::new(0), place }
    }

    /// Adds `part` if none of `unless` is there.
    fn try_enter(&self, part: u64, unless: u64) -> bool {
        let mut seen = self.word.load(Relaxed);
        while seen & unless == 0 {
            // Acquire: with the release of those who left.
            match self.word.compare_exchange(seen, seen + part, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Adds `part` as soon as none of `unless` is there, and waits for that.
    fn wait_to_add(&self, host: &H, part: u64, unless: u64) {
        while !self.try_enter(part, unless) {
            let seen = self.word.load(Relaxed);
            if seen & unless == 0 {
                continue;
            }
            let told = seen | WAITERS;
            if seen == told || self.word.compare_exchange(seen, told, Relaxed, Relaxed).is_ok() {
                host.wait(self.place, &|| {
                    let now = self.word.load(Relaxed);
                    now & WAITERS != 0 && now & unless != 0
                });
            }
        }
    }

    /// Comes in beside others.
    pub(crate) fn share<'a>(&'a self, host: &'a H) -> Inside<'a, H> {
        self.wait_to_add(host, 1, CLOSED | WANTED);
        Inside { gate: self, host, part: 1 }
    }

    /// Comes in beside others if that can be done at once.
    pub(crate) fn try_share<'a>(&'a self, host: &'a H) -> Option<Inside<'a, H>> {
        self.try_enter(1, CLOSED | WANTED).then(|| Inside { gate: self, host, part: 1 })
    }

    /// Comes in alone.
    pub(crate) fn close<'a>(&'a self, host: &'a H) -> Inside<'a, H> {
        if !self.try_enter(CLOSED, !WAITERS) {
            // Relaxed: it orders nothing, and who comes in acquires.
            let _ = self.word.fetch_add(WANTS, Relaxed);
            self.wait_to_add(host, CLOSED - WANTS, !(WAITERS | WANTED));
        }
        Inside { gate: self, host, part: CLOSED }
    }

    /// Comes in alone if that can be done at once.
    pub(crate) fn try_close<'a>(&'a self, host: &'a H) -> Option<Inside<'a, H>> {
        self.try_enter(CLOSED, !WAITERS).then(|| Inside { gate: self, host, part: CLOSED })
    }
}

impl<H: Host> Drop for Inside<'_, H> {
    fn drop(&mut self) {
        let word = &self.gate.word;
        // Release: with the acquire of those who come. Acquire: so that it is they whom a wake follows.
        let before = word.fetch_add(self.part.wrapping_neg(), AcqRel);
        if before & WAITERS != 0 {
            let _ = word.fetch_and(!WAITERS, Release);
            self.host.wake(self.gate.place);
        }
    }
}

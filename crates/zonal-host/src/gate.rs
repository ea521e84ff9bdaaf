//! Where those who cannot be served wait for those who hold free blocks for a moment.

use crate::park_lock::ParkLock;
use crate::waiting::{AtomicUsize, OnceLock, here, saw};
use std::ptr;
use std::sync::atomic::Ordering;
use zonal::platform::Lock;

/// Where those who cannot be served wait for those who hold free blocks for a moment.
#[derive(Debug)]
pub(crate) struct Gate {
    /// How often a thread has held blocks. Made by [`ready`](Self::ready), or by the first that does.
    turn: OnceLock<ParkLock<u64>>,
    /// 1 once a thread has wanted to.
    ever: AtomicUsize,
    /// Who holds them, by [`here`], 0 for none. Relaxed: a thread has to recognise itself only.
    holder: AtomicUsize,
}

/// Being the holder, until dropped; by a panic too.
struct Holding<'a>(&'a AtomicUsize);

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Gate {
    pub(crate) const fn new() -> Self {
        let (ever, holder) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { turn: OnceLock::new(), ever, holder }
    }

    /// Makes what is made once, while there is one thread: a child of a `fork` made while another is inside would
    /// wait for that thread for ever.
    pub(crate) fn ready(&self) {
        self.turn.get_or_init(|| ParkLock::new(0));
    }

    fn is_mine(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == here()
    }

    /// Runs `f`, which takes free blocks and frees them again; one thread at a time.
    pub(crate) fn hold<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.is_mine() {
            return f();
        }
        // Release: who finds that the block it looks for is gone, because it is held, sees that one may be.
        self.ever.store(1, Ordering::Release);
        self.turn.get_or_init(|| ParkLock::new(0)).with(|turns| {
            *turns += 1;
            self.holder.store(here(), Ordering::Relaxed);
            let _holding = Holding(&self.holder);
            f()
        })
    }

    /// Waits for the holder, if any, and if it is another thread. Whether there may be more free blocks
    /// now than when the caller looked: the first time it asks that may be so although no thread holds any
    /// now, and later if one has since it asked last.
    pub(crate) fn wait(&self, attempt: u32) -> bool {
        // Acquire: with the release of who holds.
        if self.ever.load(Ordering::Acquire) == 0 || self.is_mine() {
            return false;
        }
        let Some(turn) = self.turn.get() else { return false };
        let now = turn.try_with(|turns| *turns);
        let turns = now.unwrap_or_else(|| turn.with(|turns| *turns));
        // Who held what the caller looked for came after that, and has been counted.
        let news = !saw(ptr::from_ref(self).addr(), turns);
        now.is_none() || attempt == 0 || news
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_gate_asks_for_one_more_look() {
        let gate = Gate::new();
        assert!(!gate.wait(0), "no thread ever held anything");
        gate.ready();
        assert!(!gate.wait(0), "nor now");
        gate.hold(|| ());
        assert!(gate.wait(0));
        assert!(!gate.wait(1));
        gate.hold(|| ());
        assert!(gate.wait(2), "a thread has held some since");
        assert!(!gate.wait(3));
        let open = AtomicBool::new(false);
        let inside = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.hold(|| {
                    inside.wait();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    open.store(true, Ordering::Relaxed);
                });
            });
            inside.wait();
            assert!(gate.wait(5));
            assert!(open.load(Ordering::Relaxed), "it waited");
        });
    }
}

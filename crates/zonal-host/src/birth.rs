//! In which process something was made: whether it came here by `fork`.
//!
//! A child of `fork` has one thread, the one that forked. What the others were inside of stays as
//! they left it: a lock that one of them held is held for ever. So whatever waits for another
//! thread asks first whether it was made in this process. It costs a load, and only those who wait.

use std::sync::atomic::{AtomicU32, Ordering};

/// Changes with each `fork` that leads to this process, once something was made that asks. Relaxed:
/// changes only where there is no other thread.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Where something was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth(u32);

impl Default for Birth {
    /// Here and now.
    fn default() -> Self {
        watch();
        Self(GENERATION.load(Ordering::Relaxed))
    }
}

impl Birth {
    /// Whether it was in this process.
    pub(crate) fn is_here(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }

    /// To be called before waiting for another thread.
    ///
    /// # Panics
    /// If there may be no such thread, because it was in a parent.
    pub(crate) fn check(self) {
        assert!(
            self.is_here(),
            "an arena that came here by fork() waits for a thread of the parent: a child must not \
             allocate from, free to or drain an arena that it has not opened"
        );
    }
}

/// Has each child count, from now on. A `fork` that goes by the C library is seen, a bare system
/// call is not.
#[cfg(not(any(loom, miri)))]
fn watch() {
    // No `Once`: a child of a `fork` made while another thread is inside would wait for that thread
    // for ever. Of those who meet here each has children count: the number changes by more.
    static WATCHED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    // Acquire: by a `true` that is read, children count already.
    if !WATCHED.load(Ordering::Acquire) {
        // Should the library have no memory for it, children are not noticed.
        // SAFETY: the handler is a function of the program that only adds to a number.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // Release: as above.
        WATCHED.store(true, Ordering::Release);
    }
}

#[cfg(any(loom, miri))]
fn watch() {}

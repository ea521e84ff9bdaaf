//! Which process a thread asks as. Each thread is one by itself; a thread that works for others (a
//! server's, or one of a workload) says for whom.
//!
//! ```
//! use zonal_cfq::units::Process;
//! use zonal_iosched::process::{current, run_as};
//!
//! let own = current();
//! assert_eq!(run_as(Process(7), current), Process(7));
//! assert_eq!(current(), own);
//! assert_ne!(std::thread::spawn(current).join().expect("it ends"), own);
//! ```

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use zonal_cfq::units::Process;

/// The least number of a thread that was not told one: those below are for who tells.
pub const FIRST_OWN: Process = Process(1 << 31);

/// Relaxed: only that numbers differ matters.
static NEXT: AtomicU32 = AtomicU32::new(FIRST_OWN.0);

thread_local! {
    static PROCESS: Cell<Option<Process>> = const { Cell::new(None) };
}

/// The process that this thread asks as: the one it was told, or else one of its own, from [`FIRST_OWN`] on.
#[must_use]
pub fn current() -> Process {
    PROCESS.get().unwrap_or_else(|| {
        let own = Process(NEXT.fetch_add(1, Relaxed) | FIRST_OWN.0);
        PROCESS.set(Some(own));
        own
    })
}

/// Does `work`, as `process`; after it, also after a panic, the thread is what it was.
pub fn run_as<R>(process: Process, work: impl FnOnce() -> R) -> R {
    struct Before(Option<Process>);
    impl Drop for Before {
        fn drop(&mut self) {
            PROCESS.set(self.0);
        }
    }
    let _before = Before(PROCESS.replace(Some(process)));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_what_a_thread_was_told() {
        let own = current();
        let panics = || run_as(Process(1), || panic!("as was to be"));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(current(), own);
        assert!(own >= FIRST_OWN);
    }
}

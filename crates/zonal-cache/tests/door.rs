//! What stores hang at, until a test lets them go on.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than all takes that is to end.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Shut until it is opened.
#[derive(Default)]
pub(crate) struct Door {
    open: Mutex<bool>,
    opened: Condvar,
    /// A thread has come to it.
    pub(crate) met: AtomicBool,
}

impl Door {
    pub(crate) fn pass(&self) {
        self.met.store(true, SeqCst);
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }

    pub(crate) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    pub(crate) fn wait_until_met(&self) {
        let end = Instant::now() + LONG;
        while !self.met.load(SeqCst) {
            assert!(Instant::now() < end, "no thread comes to the door");
            thread::yield_now();
        }
    }
}

/// Opens a door when it is dropped: a test that fails before is to end. After what may wait at the door in its own drop.
pub(crate) struct Opens<'a>(pub(crate) &'a Door);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// What `ask` says, or `None` if it says nothing.
pub(crate) fn in_time<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (said, says) = mpsc::channel();
    thread::spawn(move || said.send(ask()));
    says.recv_timeout(LONG).ok()
}

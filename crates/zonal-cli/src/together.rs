//! Threads that begin together, or not at all.
//!
//! A run whose threads wait for each other does so for ever if one of them cannot be started. Here none begins its
//! work before all are there.
//!
//! ```
//! use std::thread::Builder;
//! use zonal_cli::together::together;
//! let parts = [(Builder::new(), 1), (Builder::new(), 2)];
//! let done = together(parts, |index, part| index + part)?;
//! assert_eq!(done.into_iter().flatten().collect::<Vec<_>>(), [1, 3]);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::sync::{PoisonError, RwLock};
use std::thread::{self, Builder};

/// Has each thread do its part of the work, with its index, once all are there, and waits until they have ended.
/// What they return, in order; an error in it is a panic of that thread.
///
/// # Errors
///
/// If the system does not give a thread: none begins.
pub fn together<P: Send, R: Send>(
    parts: impl IntoIterator<Item = (Builder, P)>,
    work: impl Fn(usize, P) -> R + Sync,
) -> io::Result<Vec<thread::Result<R>>> {
    // Whether they are to begin: known when it can be read.
    let gate = RwLock::new(false);
    let (gate, work) = (&gate, &work);
    thread::scope(|scope| {
        let mut begin = gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut started = Vec::new();
        for (index, (builder, part)) in parts.into_iter().enumerate() {
            let thread = builder.spawn_scoped(scope, move || {
                let begin = *gate.read().unwrap_or_else(PoisonError::into_inner);
                begin.then(|| work(index, part))
            });
            started.push(thread?);
        }
        *begin = true;
        drop(begin);
        Ok(started.into_iter().filter_map(|thread| thread.join().transpose()).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn none_begins_if_one_is_not_given() {
        let begun = AtomicU32::new(0);
        let work = |_, ()| begun.fetch_add(1, Relaxed);
        // No machine has room for such a stack.
        let threads = [Builder::new(), Builder::new(), Builder::new().stack_size(1 << 60)];
        together(threads.map(|thread| (thread, ())), work).expect_err("it is not given");
        assert_eq!(begun.load(Relaxed), 0);
        let done = together([(); 2].map(|()| (Builder::new(), ())), work).expect("they are given");
        assert_eq!((done.len(), begun.load(Relaxed)), (2, 2));
    }

    #[test]
    fn a_panic_is_that_of_its_thread() {
        let work = |number, ()| assert_ne!(number, 1, "as was to be");
        let done = together([(); 3].map(|()| (Builder::new(), ())), work);
        let failed: Vec<bool> = done.expect("they are given").iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, true, false]);
    }
}

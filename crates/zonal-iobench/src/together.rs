//! Threads that begin together.

use std::io;
use std::sync::{PoisonError, RwLock};
use std::thread::{self, Builder};

/// Has each thread do its part of the work, once all are there, and waits until they have ended. If
/// the system does not give one, none begins.
pub(crate) fn together<T: Send>(
    threads: impl IntoIterator<Item = Builder>,
    work: impl Fn(u32) -> T + Sync,
) -> io::Result<Vec<thread::Result<T>>> {
    // Locked until it is known whether they do.
    let begins = RwLock::new(true);
    let (begins, work) = (&begins, &work);
    thread::scope(|scope| {
        let mut all = begins.write().unwrap_or_else(PoisonError::into_inner);
        let mut started = Vec::new();
        for (number, thread) in (0..).zip(threads) {
            let thread = thread.spawn_scoped(scope, move || {
                let begins = *begins.read().unwrap_or_else(PoisonError::into_inner);
                begins.then(|| work(number))
            });
            match thread {
                Ok(thread) => started.push(thread),
                Err(error) => {
                    *all = false;
                    return Err(error);
                }
            }
        }
        drop(all);
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
        let work = |_| begun.fetch_add(1, Relaxed);
        // No machine has room for such a stack.
        let threads = [Builder::new(), Builder::new(), Builder::new().stack_size(1 << 60)];
        together(threads, work).expect_err("it is not given");
        assert_eq!(begun.load(Relaxed), 0);
        let done = together([Builder::new(), Builder::new()], work).expect("they are given");
        assert_eq!((done.len(), begun.load(Relaxed)), (2, 2));
    }

    #[test]
    fn a_panic_is_that_of_its_thread() {
        let work = |number| assert_ne!(number, 1, "as was to be");
        let done = together([Builder::new(), Builder::new(), Builder::new()], work);
        let failed: Vec<bool> = done.expect("they are given").iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, true, false]);
    }
}

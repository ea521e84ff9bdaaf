//! Work on several things, of which one that hangs holds up no other.

use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long none may be over before one more thread comes to those that are left.
const SOON: Duration = Duration::from_millis(20);
/// Threads at most, beside the caller's.
const MOST: usize = 32;

/// What no thread has begun, and what came of what is over.
struct Rest<I, R> {
    left: I,
    over: Vec<R>,
}

/// Does `work` with each of `items`, and waits for all; what came of each, in the order in which they were over. A thread does
/// one after the other, and one more comes each time that none is over for 20 ms. Where there are 32, or the system has no
/// more, the caller does what is left.
///
/// # Panics
/// If `work` does, after all others.
pub(crate) fn each<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let rest = Mutex::new(Rest { left: items.into_iter(), over: Vec::new() });
    let changed = Condvar::new();
    let hand = || {
        loop {
            let next = rest.lock().left.next();
            let Some(item) = next else { break };
            let result = work(item);
            rest.lock().over.push(result);
            changed.notify_one();
        }
    };
    thread::scope(|scope| {
        for number in 0..MOST {
            let thread = thread::Builder::new().name(format!("beside-{number}"));
            if thread.spawn_scoped(scope, hand).is_err() {
                break;
            }
            let mut rest = rest.lock();
            while rest.left.len() > 0 && !changed.wait_for(&mut rest, SOON).timed_out() {}
            if rest.left.len() == 0 {
                break;
            }
        }
        hand();
    });
    rest.into_inner().over
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Instant;

    #[test]
    fn each_is_done_once() {
        assert_eq!(each(Vec::<u8>::new(), |it| it), []);
        let all: Vec<u32> = (0..1000).collect();
        let mut done = each(all.clone(), |it| it);
        done.sort_unstable();
        assert_eq!(done, all);
    }

    /// All wait for each other: only where each has a thread they end.
    #[test]
    fn those_that_hang_have_a_thread_each() {
        let (here, start) = (AtomicUsize::new(0), Instant::now());
        let done = each((0..=MOST).collect(), |_| {
            here.fetch_add(1, SeqCst);
            while here.load(SeqCst) <= MOST && start.elapsed() < Duration::from_secs(20) {
                thread::sleep(Duration::from_millis(1));
            }
            here.load(SeqCst)
        });
        assert_eq!(done, [MOST + 1; MOST + 1]);
    }

    #[test]
    fn one_that_panics_is_told_when_all_are_over() {
        let done = AtomicUsize::new(0);
        let panics = || {
            each((0..100).collect(), |it| {
                assert!(it != 0, "planted");
                done.fetch_add(1, SeqCst)
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(done.load(SeqCst), 99);
    }
}

//! How an arena wakes its compactor.

use crate::birth::Birth;
use crate::waiting::{AtomicBool, AtomicU8, Condvar, Mutex};
use std::sync::atomic::Ordering;
use std::time::Duration;
use zonal::Order;

/// What ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// Blocks of this order are missing.
    For(Order),
    /// Nothing happened for as long as was said.
    Quiet,
    /// The thread is to end.
    Stop,
}

/// Rung by those who miss a block, heard by one thread.
///
/// The flags are relaxed: who sets one passes through `sleep` before it rings the bell, and who
/// sleeps has looked at them inside.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    attended: AtomicBool,
    stop: AtomicBool,
    /// The largest order missed since the last call, plus one; 0 for none.
    wanted: AtomicU8,
    sleep: Mutex<()>,
    bell: Condvar,
    birth: Birth,
}

impl Alarm {
    /// Makes the caller the one who hears it; `false` if there is one.
    pub(crate) fn attend(&self) -> bool {
        // Acquire: the one before has left, and `stop` is down for good.
        let mine = !self.attended.swap(true, Ordering::Acquire);
        if mine {
            self.stop.store(false, Ordering::Relaxed);
            self.wanted.store(0, Ordering::Relaxed);
        }
        mine
    }

    /// No thread hears it any more.
    pub(crate) fn leave(&self) {
        self.attended.store(false, Ordering::Release);
    }

    /// Says that a block of `order` is missing. Waits for no thread but one that is about to
    /// sleep or wake up, and that only if the order is news.
    pub(crate) fn ring(&self, order: Order) {
        let wanted = order.get() + 1;
        if self.attended.load(Ordering::Relaxed)
            && self.wanted.fetch_max(wanted, Ordering::Relaxed) < wanted
        {
            self.wake();
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the thread that hears it is in this process, and not left behind by `fork`.
    pub(crate) fn is_here(&self) -> bool {
        self.birth.is_here()
    }

    fn wake(&self) {
        if !self.is_here() {
            return;
        }
        // A thread that has looked at the flags and is not asleep yet is inside: let it fall asleep.
        drop(self.sleep.lock());
        self.bell.notify_one();
    }

    /// Sleeps until another thread rings, for at most `idle`.
    pub(crate) fn wait(&self, idle: Option<Duration>) -> Call {
        let mut sleep = self.sleep.lock();
        let mut timed_out = false;
        loop {
            if self.is_stopping() {
                return Call::Stop;
            }
            let wanted = self.wanted.swap(0, Ordering::Relaxed);
            if let Some(order) = wanted.checked_sub(1).and_then(Order::new) {
                return Call::For(order);
            }
            if timed_out {
                return Call::Quiet;
            }
            match idle {
                Some(idle) => timed_out = self.bell.wait_for(&mut sleep, idle).timed_out(),
                None => self.bell.wait(&mut sleep),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn rings_are_heard_once_and_the_largest_counts() {
        let alarm = Alarm::default();
        alarm.ring(Order::HUGE);
        assert!(alarm.attend());
        assert!(!alarm.attend(), "one is enough");
        let soon = Some(Duration::from_millis(1));
        assert_eq!(alarm.wait(soon), Call::Quiet, "no thread was there to hear it");
        for order in [Order::ZERO, Order::MAX, Order::HUGE] {
            alarm.ring(order);
        }
        assert_eq!(alarm.wait(None), Call::For(Order::MAX));
        assert_eq!(alarm.wait(soon), Call::Quiet);
        alarm.ring(Order::ZERO);
        alarm.stop();
        assert_eq!(alarm.wait(None), Call::Stop);
        alarm.leave();
        assert!(alarm.attend());
        assert_eq!(alarm.wait(soon), Call::Quiet, "a new one starts afresh");
    }

    #[test]
    fn no_ring_is_missed() {
        let alarm = Alarm::default();
        assert!(alarm.attend());
        let heard = AtomicU8::new(0);
        thread::scope(|scope| {
            // Each ring waits for the one before to be heard, so a lost one is a hang.
            let listener = scope.spawn(|| {
                while alarm.wait(None) != Call::Stop {
                    heard.fetch_add(1, Ordering::Release);
                }
            });
            for n in 1..=200 {
                alarm.ring(Order::HUGE);
                while heard.load(Ordering::Acquire) < n {
                    thread::yield_now();
                }
            }
            alarm.stop();
            listener.join().unwrap();
        });
    }
}

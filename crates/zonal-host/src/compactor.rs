//! A thread that compacts an arena in the background, so that requests for large blocks find
//! them made.
//!
//! It sleeps until the arena wakes it, because a request found no block of its order, and then
//! makes such blocks until at least half of the free memory is in blocks that large (under Linux's
//! presets, as Linux 4.16, until there is one), or nothing more can be moved, or a request wants to
//! compact instead. If nothing happens for a while it looks after one order of its own
//! ([`Settings`]) in the same way; a look in vain doubles the while, up to 64 times.
//!
//! It moves pages by the arena's [`Pager`](crate::Pager); in an arena without one it only
//! merges what a preset has put off. It holds no lock between pages, and one call of the
//! allocator moves at most 16 MiB, so a stop is seen soon. What it cannot help: a pager that
//! takes for ever to move a page keeps the thread, and the one that waits for its end.
//!
//! Source of the idea: Linux's `kcompactd` (4.6) and its proactive compaction (5.9), whose
//! interval and back-off these are.
//!
//! ```
//! use std::sync::Arc;
//! use zonal::Order;
//! use zonal_host::Arena;
//! use zonal_host::compactor::{Compactor, Settings};
//! let arena = Arc::new(Arena::builder().bytes(16 << 20).open()?);
//! let compactor = Compactor::start(arena.clone(), Settings::default())?;
//! compactor.wake(Order::HUGE);
//! let done = compactor.stop();
//! assert_eq!((done.blocks, done.panics), (0, 0), "there is nothing to do");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::Arena;
use crate::alarm::{Alarm, Call};
use crate::waiting::thread::{self, JoinHandle, Scope, ScopedJoinHandle};
use std::error::Error;
use std::fmt;
use std::io;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use zonal::Order;
use zonal::compact::CompactOutcome;
use zonal::policy::Policy;

/// How often the while doubles when looks are in vain.
const MAX_SHIFT: u32 = 6;
/// What one call of the allocator moves at most.
const CALL_BYTES: usize = 16 << 20;

/// What a compactor does when it is not woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long nothing must have happened before it looks by itself; `None`: it never does.
    /// Default: 500 ms; 1 ms at least.
    pub idle: Option<Duration>,
    /// The order that it then looks after. Default: huge pages.
    pub order: Order,
}

impl Default for Settings {
    fn default() -> Self {
        Self { idle: Some(Duration::from_millis(500)), order: Order::HUGE }
    }
}

/// What a compactor has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Times it was woken by a request or by [`Compactor::wake`]. Several at once may count as
    /// one.
    pub wakes: u64,
    /// Times it looked by itself.
    pub looks: u64,
    /// Blocks that it made.
    pub blocks: u64,
    /// Times the pager panicked. The page stayed, and the thread waited for the next wake.
    pub panics: u64,
}

/// Why there is no compactor.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The arena has one.
    Running,
    /// The arena [came here by `fork`](crate::arena#children-of-fork): a thread could not be woken.
    CameByFork,
    /// The system has no thread for it.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("the arena has a compactor already"),
            Self::CameByFork => f.write_str("the arena came here by fork()"),
            Self::Thread(error) => write!(f, "no thread for the compactor: {error}"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Running | Self::CameByFork => None,
            Self::Thread(error) => Some(error),
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    wakes: AtomicU64,
    looks: AtomicU64,
    blocks: AtomicU64,
    panics: AtomicU64,
}

#[derive(Debug)]
enum Thread<'scope> {
    Free(JoinHandle<()>),
    Scoped(ScopedJoinHandle<'scope, ()>),
}

impl Thread<'_> {
    fn is_caller(&self) -> bool {
        let thread = match self {
            Self::Free(thread) => thread.thread(),
            Self::Scoped(thread) => thread.thread(),
        };
        thread.id() == thread::current().id()
    }
}

/// The thread: stopped and waited for when this is dropped.
///
/// Dropped by the thread itself, that is by the pager while it is asked to move a page, it is told
/// to stop and not waited for; another can start when it has ended. In a child of `fork`, where
/// there is no such thread, dropping this does nothing.
#[derive(Debug)]
pub struct Compactor<'scope> {
    alarm: Arc<Alarm>,
    counts: Arc<Counts>,
    /// `None` once it was waited for.
    thread: Option<Thread<'scope>>,
}

impl Compactor<'static> {
    /// Starts one that keeps the arena open for as long as it runs.
    ///
    /// # Errors
    /// [`StartError`]: the arena has one, or came here by `fork`, or there is no thread.
    pub fn start<S>(arena: Arc<Arena<S>>, settings: Settings) -> Result<Self, StartError>
    where
        S: Policy + 'static,
        Arena<S>: Send + Sync,
    {
        let alarm = arena.alarm();
        Self::with(alarm, |work| {
            let thread = builder().spawn(move || work.run(&arena, settings));
            thread.map(Thread::Free)
        })
    }
}

impl<'scope> Compactor<'scope> {
    /// Starts one in a scope, for an arena that outlives it. The scope ends only when the
    /// compactor was dropped or stopped.
    ///
    /// # Errors
    /// As [`start`](Compactor::start).
    pub fn start_in<'env, S>(
        scope: &'scope Scope<'scope, 'env>,
        arena: &'env Arena<S>,
        settings: Settings,
    ) -> Result<Self, StartError>
    where
        S: Policy,
        Arena<S>: Sync,
    {
        Self::with(arena.alarm(), |work| {
            let thread = builder().spawn_scoped(scope, move || work.run(arena, settings));
            thread.map(Thread::Scoped)
        })
    }

    fn with(
        alarm: Arc<Alarm>,
        spawn: impl FnOnce(Work) -> io::Result<Thread<'scope>>,
    ) -> Result<Self, StartError> {
        if !alarm.is_here() {
            // None rings an alarm that came by `fork`, not even to stop.
            return Err(StartError::CameByFork);
        }
        if !alarm.attend() {
            return Err(StartError::Running);
        }
        let counts = Arc::<Counts>::default();
        // A thread that cannot be had drops its work.
        let thread = spawn(Work { alarm: alarm.clone(), counts: counts.clone() });
        let thread = Some(thread.map_err(StartError::Thread)?);
        Ok(Self { alarm, counts, thread })
    }

    /// Wakes it for blocks of `order`, as the arena does. Never blocks.
    pub fn wake(&self, order: Order) {
        self.alarm.ring(order);
    }

    /// What it has done so far.
    #[must_use]
    pub fn done(&self) -> Done {
        let Counts { wakes, looks, blocks, panics } = &*self.counts;
        let [wakes, looks, blocks, panics] =
            [wakes, looks, blocks, panics].map(|count| count.load(Relaxed));
        Done { wakes, looks, blocks, panics }
    }

    /// Stops it and waits for its end: until the page that is being moved was moved (unless it
    /// is the caller). Says what it has done.
    #[must_use = "or just drop it"]
    pub fn stop(mut self) -> Done {
        self.end();
        self.done()
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.alarm.is_here() {
            // It is in the parent; the C library may have put its stack to other use.
            return mem::forget(thread);
        }
        self.alarm.stop();
        if thread.is_caller() {
            return;
        }
        let ended = match thread {
            Thread::Free(thread) => thread.join(),
            Thread::Scoped(thread) => thread.join(),
        };
        debug_assert!(ended.is_ok() || thread::panicking(), "panics of the pager end in the loop");
    }
}

impl Drop for Compactor<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn builder() -> thread::Builder {
    thread::Builder::new().name("zonal-compact".into())
}

/// The thread's part.
struct Work {
    alarm: Arc<Alarm>,
    counts: Arc<Counts>,
}

impl Drop for Work {
    /// Here and not where the thread is waited for: it is not always waited for.
    fn drop(&mut self) {
        self.alarm.leave();
    }
}

/// What came of one wake or look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    /// Nothing was to be done.
    Idle,
    /// Blocks were made.
    Made,
    /// None could be.
    Vain,
}

impl Work {
    fn run<S: Policy>(&self, arena: &Arena<S>, settings: Settings) {
        let mut shift = 0;
        // Twice nothing is nothing: it would only look.
        let idle = settings.idle.map(|idle| idle.max(Duration::from_millis(1)));
        loop {
            let idle = idle.map(|idle| idle.saturating_mul(1 << shift));
            match self.alarm.wait(idle) {
                Call::Stop => return,
                Call::For(order) => {
                    self.counts.wakes.fetch_add(1, Relaxed);
                    self.compact(arena, order);
                }
                Call::Quiet => {
                    self.counts.looks.fetch_add(1, Relaxed);
                    shift = match self.compact(arena, settings.order) {
                        Came::Vain => MAX_SHIFT.min(shift + 1),
                        Came::Idle | Came::Made => 0,
                    };
                }
            }
        }
    }

    /// Makes blocks of `order` until there are enough, no more can be made, or it is to stop.
    fn compact<S: Policy>(&self, arena: &Arena<S>, order: Order) -> Came {
        // As many calls as go through the arena twice, and a few for its zones.
        let most = 2 * (arena.len() / CALL_BYTES + arena.zone_count());
        let (mut came, mut without) = (Came::Idle, 0);
        while without < most && !self.alarm.is_stopping() {
            // The allocator has put everything back when a panic gets here.
            let call = AssertUnwindSafe(|| arena.compact_in_background(order));
            match panic::catch_unwind(call) {
                Ok(CompactOutcome::Success) => {
                    self.counts.blocks.fetch_add(1, Relaxed);
                    (came, without) = (Came::Made, 0);
                }
                Ok(CompactOutcome::PartialSkipped) => without += 1,
                Ok(CompactOutcome::Complete | CompactOutcome::BackedOff) => without = most,
                Ok(_) => return came,
                Err(_) => {
                    self.counts.panics.fetch_add(1, Relaxed);
                    without = most;
                }
            }
            // Any thread that needs the CPU needs it more.
            thread::yield_now();
        }
        if without > 0 && came == Came::Idle { Came::Vain } else { came }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_cannot_be_had_leaves_the_place_free() {
        let alarm = Arc::<Alarm>::default();
        for _ in 0..2 {
            let none = Compactor::with(alarm.clone(), |_| Err(io::ErrorKind::WouldBlock.into()));
            let error = none.unwrap_err();
            assert!(matches!(error, StartError::Thread(_)), "{error}");
            assert!(error.to_string().starts_with("no thread for the compactor: "));
        }
        assert!(alarm.attend());
    }
}

//! Writing behind: dirty pages that no thread waits for.
//!
//! Each file's are a job for the host, and who writes behind goes by what becomes of them: a store that hangs has the thread
//! of its job, and is asked for no more until that is over. What no thread begins, as all of them may be in such stores, has
//! a spare one, one job after the other; and where the host has none, it is done by who writes behind.

use crate::asked::{DONE, Which, is_at_it};
use crate::file::FileCore;
use crate::host::Host;
use crate::inner::{Core, Setup};
use crate::room::LOOK;
use crate::writeback::dirty;
use alloc::sync::Arc;
use alloc::vec::Vec;
use zonal::platform::Lock;

/// Nanoseconds without a job that begins or ends, after which those that are left are not waited for to begin: 20 ms.
pub(crate) const SOON: u64 = 20_000_000;
/// And after which those that have begun are not waited for to end: 1 s.
const LATE: u64 = 1_000_000_000;

/// Writing behind once.
struct Behind<'a, S: Setup> {
    core: &'a Core<S>,
    files: &'a [Arc<FileCore<S>>],
    /// The host has no time for what it was asked: it is asked for no more.
    alone: bool,
}

impl<S: Setup> Behind<'_, S> {
    /// Has pages of each file written that has some, as long as `more` says so; whether some were.
    fn each(&mut self, which: Which, more: impl Fn() -> bool) -> bool {
        let (core, mut moved) = (self.core, false);
        let mut asked = Vec::new();
        for file in self.files.iter().filter(|file| file.is_dirty()) {
            if !more() {
                break;
            }
            let says = file.hear();
            if is_at_it(says) {
                // What others asked for may never be begun.
                asked.extend(file.is_asked().then_some(file));
                continue;
            }
            let taken = if self.alone { file.reserve(says) } else { core.ask(file, which, says) };
            self.alone |= taken == Some(false);
            asked.extend(taken.map(|_| file));
        }
        let (mut since, mut left, mut aside) = (core.host.now(), (usize::MAX, 0), None);
        loop {
            asked.retain(|file| {
                let says = file.hear();
                moved |= says == DONE;
                is_at_it(says)
            });
            let now = (asked.len(), asked.iter().filter(|file| file.is_asked()).count());
            if left != now {
                (since, left) = (core.host.now(), now);
            }
            let waited = core.host.now().saturating_sub(since);
            if asked.is_empty() || waited > LATE {
                return moved;
            }
            // A spare thread that is soon back is not joined by another.
            let waits = aside.is_some_and(|file: &Arc<FileCore<S>>| is_at_it(file.hear()));
            match asked.iter().find(|file| file.is_asked()) {
                Some(&file) if (self.alone && !waits) || waited > SOON => {
                    (self.alone, aside) = (true, Some(file));
                    if let Err(job) = core.write_aside(file.clone(), which) {
                        job();
                    }
                }
                _ => core.host.pause(LOOK),
            }
        }
    }
}

impl<S: Setup> Core<S> {
    /// What is older than `age`, and what there is beyond the background limit.
    pub(crate) fn write_behind(&self, age: u64) {
        let files: Vec<Arc<FileCore<S>>> =
            self.files.with(|files| files.values().cloned().collect());
        let mut behind = Behind { core: self, files: &files, alone: false };
        if let Some(before) = self.host.now().checked_sub(age) {
            behind.each(Which::Since(before), || true);
        }
        // Of each file in turn. If none moved, what is left is refused by its store, or another thread is at it.
        loop {
            let limit = self.bound_hint() * self.limits.background_percent / 100;
            if !behind.each(Which::Beyond(limit), || dirty(self) > limit) {
                break;
            }
        }
        // What could not be written when the last handle went may be by now, by this thread or another.
        files.iter().for_each(|file| file.close_if_clean(self));
    }
}

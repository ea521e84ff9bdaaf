//! Writers that are slowed as dirty pages come near their limit, and that write back themselves beyond it (ADR 52).

use crate::file::{File, FileCore};
use crate::host::Host;
use crate::inner::{Core, Setup};
use crate::store::Purpose;
use crate::table::Kind;
use crate::writeback::{SOME, dirty};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use zonal::platform::{AtomicWord, Lock};

/// Nanoseconds of a pause: less is saved up, more is too long for one piece of a write.
const PAUSE: Range<u64> = 1_000_000..100_000_000;

impl<S: Setup> File<S> {
    /// Slows who has written `pages`, the more the nearer the dirty pages are to their limit, and has pages of
    /// this file written back beyond it. Those of a file without a store to go to are not dirty.
    pub(crate) fn throttle(&self, pages: u64) {
        if self.file.kind() == Kind::Kept {
            return;
        }
        let core = &*self.core;
        let of = |percent: u64| core.bound_hint() * percent / 100;
        let more = |limit: u64| if self.is_less_throttled() { limit + limit / 4 } else { limit };
        let (most, background) =
            (more(of(core.limits.dirty_percent)), of(core.limits.background_percent));
        let dirty = dirty(core);
        if dirty > most {
            return self.file.write_down(core, most);
        }
        if dirty <= background || !core.host.nudge() {
            return;
        }
        let background = more(background).min(dirty);
        // Half-way a writer is as slow as the store; with others, they are so together further up.
        let pause = pages * core.page_time.load(Relaxed);
        let pause = pause.saturating_mul(dirty - background) / (most - dirty).max(1);
        let debt = self.debt.fetch_add(pause.min(PAUSE.end), Relaxed) + pause;
        if debt >= PAUSE.start {
            self.debt.store(0, Relaxed);
            core.host.pause(debt.min(PAUSE.end));
        }
    }
}

impl<S: Setup> FileCore<S> {
    /// Writes pages back until at most `most` are dirty, of all files, for as long as the store takes some; waits for
    /// other threads if they are at all that there is.
    fn write_down(&self, core: &Core<S>, most: u64) {
        // Each page once, and none that others write to meanwhile: it ends, however busy they are.
        let (start, mut first) = (core.host.now(), 0);
        while dirty(core) > most {
            let inside = self.enter(core);
            let pages = self.take_to_write(core, (first, u64::MAX), SOME, start);
            let Some(last) = pages.last() else {
                drop(inside);
                if self.state.with(|state| !state.moving.is_empty()) {
                    drop(self.flush.close(&core.host));
                }
                return;
            };
            first = last + 1;
            if self.write_back(core, pages, Purpose::Behind).0 == 0 {
                return;
            }
        }
    }
}

//! Room for a page where none can be had at once: dirty pages are written back for it.
//!
//! Those of the file that wants it are written by the thread that asks, which needs that store in any case. Those of others
//! are written by a thread of the host that is [asked](crate::asked): a store that hangs has that thread then, and none that
//! has nothing to do with it. If no such thread begins, as all may be in stores that hang, a spare one does. A host without
//! threads has the one that asks do it (ADR 113).

use crate::asked::{DONE, NOT_ASKED, REFUSED, Which, is_at_it};
use crate::behind::SOON;
use crate::error::CacheError;
use crate::file::FileCore;
use crate::host::Host;
use crate::inner::{Core, Met, SOME, Setup};
use crate::table::{Claimed, Key};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use zonal::platform::{Lock, Platform};

/// Rounds in which no page could be had and none was on its way, before a request gives up.
const PATIENCE: u32 = 64;
/// Nanoseconds after which pages that are on their way count as none: 5 s.
const LATE: u64 = 5_000_000_000;
/// Nanoseconds between two looks at what another thread was asked for.
pub(crate) const LOOK: u64 = 50_000;
/// Rounds in which it looks again at once for what other threads have on its way; then it lets go of its CPU between two.
const AT_ONCE: u32 = 64;

/// What came of an attempt to have a dirty page written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cleaned {
    Done,
    Refused,
    /// Other threads are at it.
    Elsewhere,
    /// A thread of the host is to do it, or does it.
    Asked,
}

/// What one who waits for room knows of what the host was asked for.
struct Hears {
    /// The files of which it knows that the host is at them.
    files: Vec<u64>,
    /// Since when it looks; then, since when a spare thread was asked last.
    since: u64,
    /// The host had no spare thread.
    alone: bool,
}

impl Hears {
    const fn new(since: u64) -> Self {
        Self { files: Vec::new(), since, alone: false }
    }
}

impl<S: Setup> Core<S> {
    /// As [`one_at_once`](Self::one_at_once), but has pages written back for it and waits for others that are.
    pub(crate) fn one_in_time(&self, mut met: Met) -> Result<Claimed, CacheError> {
        let (mut idle, mut waited) = (0, 0);
        let start = self.host.now();
        let mut hears = Hears::new(start);
        loop {
            let mut moves = mem::take(&mut met.moving);
            let (mut cleaned, mut asked) = (false, false);
            for key in mem::take(&mut met.dirty).into_iter().flatten() {
                match self.clean(key, met.own, &mut hears) {
                    Cleaned::Done => {
                        cleaned = true;
                        break;
                    }
                    Cleaned::Refused => {}
                    Cleaned::Elsewhere => moves = true,
                    Cleaned::Asked => (moves, asked) = (true, true),
                }
            }
            // What is on its way may be on a device that hangs.
            if (!cleaned && !moves) || self.is_late(start) {
                idle += 1;
            }
            if let Some(claimed) = self.one_at_once(&mut met) {
                return Ok(claimed);
            }
            if idle > PATIENCE {
                let (bound, used) = self.bound();
                return Err(if used >= bound {
                    CacheError::NoRoom { bound }
                } else {
                    CacheError::NoFrames
                });
            }
            if cleaned {
                waited = 0;
            } else if asked || waited >= AT_ONCE {
                self.host.pause(LOOK);
            } else {
                waited += 1;
                <S::Host as Platform>::relax();
            }
        }
    }

    /// Has pages of any of these written whose store takes them; whether one did.
    pub(crate) fn clean_any(&self, keys: [Option<Key>; SOME]) -> bool {
        let mut keys: Vec<Key> = keys.into_iter().flatten().collect();
        let start = self.host.now();
        let mut hears = Hears::new(start);
        loop {
            let mut done = false;
            keys.retain(|&key| {
                let cleaned = if done { Cleaned::Refused } else { self.clean(key, 0, &mut hears) };
                done |= cleaned == Cleaned::Done;
                cleaned == Cleaned::Asked
            });
            if done || keys.is_empty() || self.is_late(start) {
                return done;
            }
            self.host.pause(LOOK);
        }
    }

    fn is_late(&self, start: u64) -> bool {
        self.host.now().saturating_sub(start) > LATE
    }

    /// Writes a dirty page back and its neighbours, for a page of the file `own`, or has the host do it.
    fn clean(&self, key: Key, own: u64, hears: &mut Hears) -> Cleaned {
        let Some(file) = self.files.with(|files| files.get(&key.file).cloned()) else {
            // One that was waited for has left with all of it written.
            return if hears.files.contains(&key.file) { Cleaned::Done } else { Cleaned::Refused };
        };
        if key.file == own {
            return match file.write_some(self, key.index) {
                Some(0) => Cleaned::Refused,
                Some(_) => Cleaned::Done,
                None => Cleaned::Elsewhere,
            };
        }
        let (before, waits) = (file.hear(), hears.files.contains(&key.file));
        // What was said to one who waits no more is not of now.
        if (before == NOT_ASKED || (!is_at_it(before) && !waits))
            && self.ask(&file, Which::From(key.index), before) == Some(false)
        {
            file.never_mind();
        }
        if !waits {
            hears.files.push(key.file);
        }
        let seen = file.hear();
        if seen == NOT_ASKED || is_at_it(seen) {
            self.hurry(file, key.index, hears);
            return Cleaned::Asked;
        }
        // Of two who hear it one counts it.
        hears.files.retain(|&it| it != key.file);
        match (file.heard(seen), seen) {
            (true, DONE) => Cleaned::Done,
            (true, REFUSED) => Cleaned::Refused,
            _ => Cleaned::Elsewhere,
        }
    }

    /// What no thread has begun in time, as all of them may be in stores that hang, a spare one does. One that is soon back is
    /// not joined by another.
    fn hurry(&self, file: Arc<FileCore<S>>, first: u64, hears: &mut Hears) {
        let now = self.host.now();
        if file.is_asked() && !hears.alone && now.saturating_sub(hears.since) > SOON {
            hears.since = now;
            hears.alone = self.write_aside(file, Which::From(first)).is_err();
        }
    }
}

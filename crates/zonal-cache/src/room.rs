//! Room for a page where none can be had at once: dirty pages are written back for it.
//!
//! Those of the file that wants it are written by the thread that asks, which needs that store in any case. Those of others
//! are written by a thread of the host, at most one for each file: a store that hangs has that thread then, and none that
//! has nothing to do with it. A host without threads has the one that asks do it (ADR 113).

use crate::error::CacheError;
use crate::file::FileCore;
use crate::host::Host;
use crate::inner::{Core, Met, SOME, Setup};
use crate::table::{Claimed, Key};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use zonal::platform::{AtomicByte, Lock, Platform};

/// Rounds in which no page could be had and none was on its way, before a request gives up.
const PATIENCE: u32 = 64;
/// Nanoseconds after which pages that are on their way count as none: 5 s.
const LATE: u64 = 5_000_000_000;
/// Nanoseconds between two looks at what another thread was asked for.
const LOOK: u64 = 50_000;
/// Rounds in which it looks again at once for what other threads have on its way; then it lets go of its CPU between two.
const AT_ONCE: u32 = 64;

/// What [`FileCore::cleaning`] says: the host was not asked to write pages of the file,
const NOT_ASKED: u8 = 0;
/// or is at it;
const ASKED: u8 = 1;
/// some were written,
const DONE: u8 = 2;
/// or none,
const REFUSED: u8 = 3;
/// or other threads were at them, or the host had no time.
const ELSEWHERE: u8 = 4;

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

/// Says when it goes what came of it.
struct Asked<S: Setup> {
    file: Arc<FileCore<S>>,
    says: u8,
}

impl<S: Setup> Asked<S> {
    fn write(mut self, core: &Core<S>, index: u64) {
        // If the store panics.
        self.says = REFUSED;
        self.says = match self.file.write_some(core, index) {
            Some(0) => REFUSED,
            Some(_) => DONE,
            None => ELSEWHERE,
        };
        // A file without a handle was left for this.
        self.file.close_if_clean(core);
    }
}

impl<S: Setup> Drop for Asked<S> {
    fn drop(&mut self) {
        // Release: with the acquire of who hears it.
        self.file.cleaning.store(self.says, Release);
    }
}

impl<S: Setup> Core<S> {
    /// As [`one_at_once`](Self::one_at_once), but has pages written back for it and waits for others that are.
    pub(crate) fn one_in_time(&self, mut met: Met) -> Result<Claimed, CacheError> {
        let (mut idle, mut waited, mut hears) = (0, 0, Vec::new());
        let start = self.host.now();
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
        let (start, mut hears) = (self.host.now(), Vec::new());
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

    /// Writes a dirty page back and its neighbours, for a page of the file `own`, or has the host do it. Of the files that
    /// the caller `hears` of it knows that the host is at them.
    fn clean(&self, key: Key, own: u64, hears: &mut Vec<u64>) -> Cleaned {
        let Some(file) = self.files.with(|files| files.get(&key.file).cloned()) else {
            // One that was waited for has left with all of it written.
            return if hears.contains(&key.file) { Cleaned::Done } else { Cleaned::Refused };
        };
        if key.file == own {
            return match file.write_some(self, key.index) {
                Some(0) => Cleaned::Refused,
                Some(_) => Cleaned::Done,
                None => Cleaned::Elsewhere,
            };
        }
        let (before, waits) = (file.cleaning.load(Relaxed), hears.contains(&key.file));
        // What was said to one who waits no more is not of now.
        if before == NOT_ASKED || (before != ASKED && !waits) {
            self.ask(&file, key.index, before);
        }
        if !waits {
            hears.push(key.file);
        }
        // Acquire: with the release of who has written.
        let seen = file.cleaning.load(Acquire);
        if matches!(seen, ASKED | NOT_ASKED) {
            return Cleaned::Asked;
        }
        // Of two who hear it one counts it.
        hears.retain(|&it| it != key.file);
        match (file.cleaning.compare_exchange(seen, NOT_ASKED, Relaxed, Relaxed), seen) {
            (Ok(_), DONE) => Cleaned::Done,
            (Ok(_), REFUSED) => Cleaned::Refused,
            _ => Cleaned::Elsewhere,
        }
    }

    /// Has the host write pages of a file, unless it says something else of it by now than `before`.
    fn ask(&self, file: &Arc<FileCore<S>>, index: u64, before: u8) {
        // Relaxed: what it is asked to do is ordered by how the host hands it over.
        if file.cleaning.compare_exchange(before, ASKED, Relaxed, Relaxed).is_ok()
            && let asked = (Asked { file: file.clone(), says: ELSEWHERE })
            && let Some(core) = self.this.upgrade()
        {
            // What is not taken says so when it goes.
            drop(self.host.defer(Box::new(move || asked.write(&core, index))));
        }
    }
}

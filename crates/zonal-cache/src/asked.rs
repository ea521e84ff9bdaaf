//! Pages of a file that the host is asked to write: for room that others need, and behind.
//!
//! There is one such job for each file at a time: a store that hangs has one thread for it. A job that no thread has begun is
//! anyone's to do: who does it says so first, and the job finds nothing to do when it comes.

use crate::file::FileCore;
use crate::host::{Host, Job};
use crate::inner::{Core, Setup};
use crate::store::Purpose;
use crate::writeback::dirty;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use zonal::platform::{AtomicByte, Platform};

/// What [`FileCore::cleaning`] says: the host was not asked to write pages of the file,
pub(crate) const NOT_ASKED: u8 = 0;
/// or was, and no thread has begun,
const ASKED: u8 = 1;
/// or one is at it;
const BEGUN: u8 = 2;
/// some were written,
pub(crate) const DONE: u8 = 3;
/// or none,
pub(crate) const REFUSED: u8 = 4;
/// or other threads were at them, or the host had no time, or there was nothing to do.
const ELSEWHERE: u8 = 5;

/// Whether it is to be heard later what came of it.
pub(crate) const fn is_at_it(says: u8) -> bool {
    matches!(says, ASKED | BEGUN)
}

/// Which pages of a file are to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// Some, from this one on.
    From(u64),
    /// Those that are dirty since this moment at least.
    Since(u64),
    /// Some, while more than this are dirty, of all files.
    Beyond(u64),
}

impl Which {
    /// Writes them; what is to be said of it.
    fn write<S: Setup>(self, core: &Core<S>, file: &FileCore<S>) -> u8 {
        let first = match self {
            Self::From(first) => first,
            Self::Beyond(limit) if dirty(core) > limit => 0,
            Self::Beyond(_) => return ELSEWHERE,
            Self::Since(before) => {
                let Some(_inside) = file.try_enter(core) else { return ELSEWHERE };
                let pages = file.write_range(core, (0, u64::MAX), before, Purpose::Behind);
                return if pages > 0 { DONE } else { ELSEWHERE };
            }
        };
        match file.write_some(core, first) {
            Some(0) => REFUSED,
            Some(_) => DONE,
            None => ELSEWHERE,
        }
    }
}

/// A job that was begun. Says when it goes what came of it, after it has let go of the file: who hears it may be the last
/// who has that.
struct Begun<S: Setup> {
    file: Option<Arc<FileCore<S>>>,
    cleaning: Arc<<S::Host as Platform>::Byte>,
    says: u8,
}

impl<S: Setup> Begun<S> {
    /// Begins what the host was asked to do, if no other thread has.
    fn begin(file: Arc<FileCore<S>>) -> Option<Self> {
        file.cleaning.compare_exchange(ASKED, BEGUN, Relaxed, Relaxed).ok()?;
        Some(Self { cleaning: file.cleaning.clone(), file: Some(file), says: ELSEWHERE })
    }

    fn write(mut self, core: &Core<S>, which: Which) {
        if let Some(file) = &self.file {
            // If the store panics.
            self.says = REFUSED;
            self.says = which.write(core, file);
            // A file without a handle was left for this.
            file.close_if_clean(core);
        }
    }
}

impl<S: Setup> Drop for Begun<S> {
    fn drop(&mut self) {
        self.file = None;
        // Release: with the acquire of who hears it.
        self.cleaning.store(self.says, Release);
    }
}

impl<S: Setup> Core<S> {
    /// Asks the host to write pages of a file, unless it says something else of it by now than `before`; whether it will. If
    /// it will not, the caller [does](Self::write_asked) it or says that it is [not to be done](FileCore::never_mind).
    pub(crate) fn ask(&self, file: &Arc<FileCore<S>>, which: Which, before: u8) -> Option<bool> {
        file.reserve(before)?;
        // It may wait behind a store that hangs, and keeps neither meanwhile.
        let (core, file) = (self.this.clone(), Arc::downgrade(file));
        let job = move || {
            if let (Some(core), Some(file)) = (core.upgrade(), file.upgrade()) {
                core.write_asked(file, which);
            }
        };
        Some(self.host.defer(Box::new(job)).is_ok())
    }

    /// Does what the host was asked to, on the calling thread, if no other has begun it.
    pub(crate) fn write_asked(&self, file: Arc<FileCore<S>>, which: Which) {
        if let Some(begun) = Begun::begin(file) {
            begun.write(self, which);
        }
    }

    /// The same on a spare thread of the host. If it has none, who has it is to [do](FnOnce) it or drop it, and then it
    /// is not done.
    pub(crate) fn write_aside(&self, file: Arc<FileCore<S>>, which: Which) -> Result<(), Job> {
        let (Some(core), Some(begun)) = (self.this.upgrade(), Begun::begin(file)) else {
            return Ok(());
        };
        self.host.spare(Box::new(move || begun.write(&core, which)))
    }
}

impl<S: Setup> FileCore<S> {
    /// What the host says.
    pub(crate) fn hear(&self) -> u8 {
        // Acquire: with the release of who has written.
        self.cleaning.load(Acquire)
    }

    /// As if the host had been [asked](Core::ask), and would not.
    pub(crate) fn reserve(&self, before: u8) -> Option<bool> {
        // Relaxed: what it is asked to do is ordered by how the host hands it over.
        let asked = self.cleaning.compare_exchange(before, ASKED, Relaxed, Relaxed);
        asked.ok().map(|_| false)
    }

    /// One has heard that it says `seen`; whether no other has.
    pub(crate) fn heard(&self, seen: u8) -> bool {
        self.cleaning.compare_exchange(seen, NOT_ASKED, Relaxed, Relaxed).is_ok()
    }

    /// What it was asked for is not to be done, unless a thread has begun.
    pub(crate) fn never_mind(&self) {
        let _ = self.cleaning.compare_exchange(ASKED, ELSEWHERE, Relaxed, Relaxed);
    }

    /// Whether it was asked, and no thread has begun.
    pub(crate) fn is_asked(&self) -> bool {
        self.cleaning.load(Relaxed) == ASKED
    }
}

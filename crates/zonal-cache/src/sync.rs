//! All files are synced, and one whose store hangs holds up no other.
//!
//! Another thread syncs one after the other, and who asked looks on. If for a while no file is over, one more thread comes to
//! those that are left: a store that hangs has the thread that is in it, and its file alone waits. Where the host has no
//! more threads, who asked does what is left.

use crate::behind::SOON;
use crate::file::FileCore;
use crate::host::Host;
use crate::inner::{Core, Setup};
use crate::room::LOOK;
use crate::store::StoreError;
use crate::table::Kind;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::mem;
use zonal::platform::Lock;

/// Of what was waited for already, the part that is waited for until the next look.
const PART: u64 = 16;

/// How far a round has come.
struct State<S: Setup> {
    /// Files that no thread has begun.
    left: VecDeque<Arc<FileCore<S>>>,
    /// Files that are over.
    over: usize,
    /// Threads that are at it.
    hands: usize,
    /// What went wrong with the last of the files of which something did, by its number.
    error: Option<(u64, StoreError)>,
}

/// Files that are to be synced.
struct Round<S: Setup>(<S::Host as Host>::Mutex<State<S>>);

/// A thread that is at it, until dropped; by a panic too.
struct Hand<S: Setup> {
    round: Arc<Round<S>>,
    core: Option<Arc<Core<S>>>,
}

impl<S: Setup> Drop for Hand<S> {
    fn drop(&mut self) {
        // Before it is said: who hears it may be the last who has that.
        self.core = None;
        self.round.0.with(|state| state.hands -= 1);
    }
}

/// A file that a thread has begun. If its store panics it is over with an error.
struct Begun<'a, S: Setup> {
    round: &'a Round<S>,
    number: u64,
    error: Option<StoreError>,
}

impl<S: Setup> Drop for Begun<'_, S> {
    fn drop(&mut self) {
        let error = self.error.map(|error| (self.number, error));
        self.round.0.with(|state| {
            state.over += 1;
            if error.is_some_and(|(number, _)| state.error.is_none_or(|last| last.0 < number)) {
                state.error = error;
            }
        });
    }
}

impl<S: Setup> Round<S> {
    /// Syncs files until there is none that no thread has begun.
    fn work(&self, core: &Core<S>) {
        while let Some(file) = self.0.with(|state| state.left.pop_front()) {
            let (number, error) = (file.number, Some(StoreError::IO));
            let mut begun = Begun { round: self, number, error };
            begun.error = file.sync_or_close(core);
            drop(file);
        }
    }

    /// Has one more thread of the host be at it; whether there is one.
    fn begin(self: &Arc<Self>, core: &Arc<Core<S>>) -> bool {
        self.0.with(|state| state.hands += 1);
        let hand = Hand { round: self.clone(), core: Some(core.clone()) };
        let job = move || {
            if let Some(core) = &hand.core {
                hand.round.work(core);
            }
            drop(hand);
        };
        core.host.spare(Box::new(job)).is_ok()
    }

    /// Has other threads begin all files, or as many as the host has threads for.
    fn hand_out(self: &Arc<Self>, core: &Arc<Core<S>>) {
        let (mut since, mut before) = (core.host.now(), 0);
        loop {
            let (left, over, hands) =
                self.0.with(|state| (state.left.len(), state.over, state.hands));
            let now = core.host.now();
            if mem::replace(&mut before, over) != over {
                since = now;
            }
            if left == 0 {
                return;
            }
            if hands == 0 || now.saturating_sub(since) > SOON {
                if !self.begin(core) {
                    return;
                }
                since = now;
            }
            core.host.pause(LOOK);
        }
    }

    /// Waits for the threads that are at it.
    fn wait(&self, core: &Core<S>) {
        let start = core.host.now();
        while self.0.with(|state| state.hands) > 0 {
            let waited = core.host.now().saturating_sub(start);
            core.host.pause((waited / PART).clamp(LOOK, SOON));
        }
    }
}

impl<S: Setup> FileCore<S> {
    /// Syncs it, and lets it go if it has no handle; what went wrong.
    fn sync_or_close(&self, core: &Core<S>) -> Option<StoreError> {
        let errors = || self.state.with(|state| (state.errors, state.error));
        let (before, _) = errors();
        self.sync(core, (0, u64::MAX));
        let (after, error) = errors();
        if self.is_closed() {
            self.close(core);
        }
        error.filter(|_| after != before)
    }
}

impl<S: Setup> Core<S> {
    /// Syncs all files; the last error.
    pub(crate) fn sync_all(self: &Arc<Self>) -> Option<StoreError> {
        let mut left: VecDeque<Arc<FileCore<S>>> =
            self.files.with(|files| files.values().cloned().collect());
        // What is anonymous is not to last.
        left.retain(|file| file.kind() == Kind::File);
        let several = left.len() > 1;
        let round = Arc::new(Round(Lock::new(State { left, over: 0, hands: 0, error: None })));
        if several {
            round.hand_out(self);
        }
        round.work(self);
        round.wait(self);
        round.0.with(|state| state.error).map(|(_, error)| error)
    }
}

//! Planted bugs: policies for lists of frames that undo too little or too much.

use zonal::policy::bulk_free::Committed;
use zonal_testkit::lists::{Hooked, Hooks};

/// Planted bug: what could not be committed is forgotten.
pub(crate) type ForgetsUndo = Hooked<Forgets>;
/// Planted bug: what was committed is taken back too.
pub(crate) type UndoesAll = Hooked<All>;

/// See [`ForgetsUndo`].
pub(crate) struct Forgets;

impl Hooks for Forgets {
    fn unprepare(_: impl FnOnce() -> bool) -> bool {
        false
    }
}

/// See [`UndoesAll`].
pub(crate) struct All;

impl Hooks for All {
    fn commit(prepared: u64, commit: impl FnOnce() -> Committed) -> Committed {
        let left = commit();
        Committed { uncached: prepared & !left.rest, ..left }
    }
}

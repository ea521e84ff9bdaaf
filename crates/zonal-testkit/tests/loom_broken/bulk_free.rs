//! Planted bugs: policies for lists of frames that undo too little or too much.

use zonal::policy::bulk_free::{BulkFree, Committed, Listed, PrepareCommit};

/// [`PrepareCommit`] on a list with other answers to `commit` and `unprepare`.
macro_rules! broken_list {
    ($(#[$doc:meta])* $name:ident, commit: $commit:expr, unprepare: $unprepare:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name;

        impl BulkFree for $name {
            fn free(list: &mut impl Listed) {
                struct Broken<'a, L>(&'a mut L);
                impl<L: Listed> Listed for Broken<'_, L> {
                    fn len(&self) -> usize {
                        self.0.len()
                    }
                    fn one(&mut self, at: usize) {
                        self.0.one(at);
                    }
                    fn run(&mut self, at: usize) -> usize {
                        self.0.run(at)
                    }
                    fn prepare(&mut self, from: usize) -> u64 {
                        self.0.prepare(from)
                    }
                    fn commit(&mut self, from: usize, prepared: u64) -> Committed {
                        let committed = self.0.commit(from, prepared);
                        $commit(prepared, committed)
                    }
                    fn unprepare(&mut self, at: usize) -> bool {
                        $unprepare && self.0.unprepare(at)
                    }
                    fn direct(&mut self, at: usize) {
                        self.0.direct(at);
                    }
                }
                PrepareCommit::free(&mut Broken(list));
            }
        }
    };
}

broken_list!(
    /// Planted bug: what could not be committed is forgotten.
    ForgetsUndo, commit: |_, committed| committed, unprepare: false
);
broken_list!(
    /// Planted bug: what was committed is taken back too.
    UndoesAll, commit: |all, left: Committed| Committed { uncached: all & !left.rest, ..left },
    unprepare: true
);

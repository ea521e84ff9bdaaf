//! Planted bugs: cluster policies that do not wait when they should.

use std::cell::Cell;
use zonal::platform::Platform;
use zonal::policy::cluster::{ClusterArray, ClusterWords, Clusters, Cut, Cutting, Members};

loom::thread_local! {
    static MERGES: Cell<bool> = Cell::new(false);
}

/// Says that the calling model thread only merges single frames from now on.
pub(crate) fn only_merges(only: bool) {
    MERGES.with(|merges| merges.set(only));
}

/// [`Cut`] with another `wait`.
macro_rules! broken_wait {
    ($(#[$doc:meta])* $name:ident, $waits:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name;

        impl Clusters for $name {
            const CUT: bool = true;
            const JOIN: bool = false;
            type Zone = ClusterArray;
            const VACANT: ClusterArray = <Cut as Clusters>::VACANT;

            fn cluster_words(managed: u64, batch: u32) -> u64 {
                Cut::cluster_words(managed, batch)
            }
            fn tune(zone: &mut ClusterArray, first: u64, managed: u64, batch: u32) {
                Cut::tune(zone, first, managed, batch);
            }
            fn set_batch(zone: &mut ClusterArray, batch: u32) {
                Cut::set_batch(zone, batch);
            }
            fn joined<P: Platform>(
                zone: &mut ClusterArray,
                words: ClusterWords<'_, P>,
                index: u32,
                skipped: bool,
                neighbour: Option<u32>,
                last: bool,
            ) {
                Cut::joined(zone, words, index, skipped, neighbour, last);
            }
            fn leaving<P: Platform>(
                zone: &mut ClusterArray,
                words: ClusterWords<'_, P>,
                index: u32,
                skipped: bool,
                before: Option<u32>,
            ) {
                Cut::leaving(zone, words, index, skipped, before);
            }
            fn end<P: Platform>(
                zone: &mut ClusterArray,
                words: ClusterWords<'_, P>,
                head: u32,
                most: u64,
            ) -> Option<Members> {
                Cut::end(zone, words, head, most)
            }
            fn begin<P: Platform>(
                zone: &mut ClusterArray,
                words: ClusterWords<'_, P>,
                members: Members,
            ) -> Option<u32> {
                Cut::begin(zone, words, members)
            }
            fn find<P: Platform>(
                zone: &ClusterArray,
                words: ClusterWords<'_, P>,
                index: u32,
            ) -> Option<(u32, Members)> {
                Cut::find(zone, words, index)
            }
            fn used<P: Platform>(zone: &ClusterArray, words: ClusterWords<'_, P>) -> u32 {
                Cut::used(zone, words)
            }
            fn cut<P: Platform>(zone: &ClusterArray, words: ClusterWords<'_, P>) -> Cutting {
                Cut::cut(zone, words)
            }
            fn wait<P: Platform>(zone: &ClusterArray, words: ClusterWords<'_, P>) -> bool {
                $waits() && Cut::wait(zone, words)
            }
        }
    };
}

broken_wait!(
    /// Planted bug: no CPU waits.
    NeverWaits, || false
);
broken_wait!(
    /// Planted bug: a CPU that scans a pageblock or disables clusters waits, one that merges
    /// a single frame does not.
    MergesAtOnce, || !MERGES.with(Cell::get)
);

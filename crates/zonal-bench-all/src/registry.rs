//! Every subject there is, with every workload.
//!
//! ```
//! assert!(zonal_bench_all::registry::presets().iter().any(|entry| entry.profile.name == "Zonal"));
//! ```

use zonal::preset::{
    Cluster, ClusterFree, FairZone, FairZonePosted, LessDirty, Linux63, Linux316, Linux413,
    Linux416, SkipMerge, SplitZones, Trusting, Zonal,
};
use zonal_bench::program::Every;
use zonal_bench::subjects::zonal::entries_of;
use zonal_bench::subjects::{self, Entry};

/// zonal's presets, in the order they are run.
#[must_use]
pub fn presets() -> Vec<Entry> {
    let presets = [
        entries_of::<Zonal>(),
        entries_of::<Linux416>(),
        entries_of::<SkipMerge>(),
        entries_of::<Cluster>(),
        entries_of::<ClusterFree>(),
        entries_of::<Linux413>(),
        entries_of::<Linux316>(),
        entries_of::<FairZonePosted>(),
        entries_of::<FairZone>(),
        entries_of::<LessDirty>(),
        entries_of::<Linux63>(),
        entries_of::<SplitZones>(),
        entries_of::<Trusting>(),
    ];
    presets.concat()
}

/// Every subject built in: zonal's presets, then peers, then references.
#[must_use]
pub fn all() -> Vec<Entry> {
    let mut entries = presets();
    #[cfg(feature = "peers")]
    {
        entries.extend(zonal_peers::entries::<Every>());
        entries.extend(zonal_mallocs::entries::<Every>());
    }
    entries.extend(subjects::references::<Every>());
    entries
}

//! The kernels of the tables: what of them decides where page cache is allocated, what reclaim does,
//! and how long the I/O scheduler's slices are.
//!
//! Sources: Gorman 2014, patches 1, 3 and 4, and Weiner's review; rules of reclaim as Linux 3.0 and
//! 3.16 have them; Gorman 2017 for how the pages of a file are freed.
//!
//! ```
//! use zonal_iobench::kernel::{Kernel, Walk};
//!
//! let posted = Kernel::named("fairzone").expect("it is in the tables");
//! assert_eq!((posted.walk, posted.target_ms), (Walk::Posted, 600));
//! assert!(Kernel::named("4.4").is_none());
//! ```

use zonal_scenario::preset::Preset;

/// Which zone a page is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// The highest zone above its low watermark.
    FirstFit,
    /// In turn, as many from each zone as its batch says; once more without batches if all are used
    /// up or low.
    Fair(Batch),
    /// The same, but what fails goes to the slow path without a second pass: one node has no remote
    /// zones that it would be for.
    FairOnePass(Batch),
    /// Patch 3 as posted: zones that are used up are flagged, and batches, a quarter of the zone, are
    /// filled again when all are flagged or one is low.
    Posted,
}

/// How many pages a zone gives in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// The high watermark less the low one.
    Watermarks,
    /// A quarter of the zone.
    Quarter,
}

/// Which zones a page that is to be written may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyLimit {
    /// Any.
    None,
    /// Those within their part of the dirty limit, computed each time.
    Exact,
    /// Those within the limit as it was when it was last exceeded (patch 4).
    Cached,
}

/// What reclaim does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// As Linux 3.0.
    V3_0,
    /// As Linux 3.16.
    V3_16,
}

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name in the tables.
    pub name: &'static str,
    /// Where pages come from.
    pub walk: Walk,
    /// Where pages that are written to come from.
    pub dirty: DirtyLimit,
    /// What reclaim does; also how much is written back of a file before the next has its turn.
    pub reclaim: Reclaim,
    /// CFQ's target latency in ms.
    pub target_ms: u64,
    /// The allocator, as far as it decides what freeing the pages of a file takes.
    pub frees: Preset,
}

/// The unpatched kernel that the others are compared with.
pub const BASE: &str = "3.16-rc1";

const V3_16: Kernel = Kernel {
    name: BASE,
    walk: Walk::Fair(Batch::Watermarks),
    dirty: DirtyLimit::Exact,
    reclaim: Reclaim::V3_16,
    target_ms: 300,
    frees: Preset::Linux316,
};

/// The unpatched kernel of the lists of 2017, by its name in that table.
pub const BASE_2017: &str = "base";

/// Its page cache is turned over as a whole, by node; what comes nearest to that here is the fair
/// walk.
const V4_14: Kernel =
    Kernel { name: BASE_2017, dirty: DirtyLimit::None, frees: Preset::Linux413, ..V3_16 };

/// All of them. Each patch of the series of 2014 comes on top of those before it.
pub const KERNELS: [Kernel; 10] = [
    Kernel {
        name: "3.0",
        walk: Walk::FirstFit,
        dirty: DirtyLimit::None,
        reclaim: Reclaim::V3_0,
        ..V3_16
    },
    V3_16,
    Kernel { name: "cfq600", target_ms: 600, ..V3_16 },
    Kernel { name: "fairzone", walk: Walk::Posted, target_ms: 600, ..V3_16 },
    Kernel {
        name: "lessdirty",
        walk: Walk::Posted,
        dirty: DirtyLimit::Cached,
        target_ms: 600,
        ..V3_16
    },
    // All patches: what `lessdirty` is. The second patch is of tracepoints that are off.
    Kernel {
        name: "series",
        walk: Walk::Posted,
        dirty: DirtyLimit::Cached,
        target_ms: 600,
        ..V3_16
    },
    Kernel { name: "bigbatches", walk: Walk::Fair(Batch::Quarter), ..V3_16 },
    Kernel { name: "bigbatches1node", walk: Walk::FairOnePass(Batch::Quarter), ..V3_16 },
    V4_14,
    // Prepared one by one, and freed with interrupts off once.
    Kernel { name: "one_irq", frees: Preset::Linux416, ..V4_14 },
];

impl Kernel {
    /// The kernel of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KERNELS.into_iter().find(|kernel| kernel.name == name)
    }

    /// Whether nothing of it was patched.
    #[must_use]
    pub fn is_unpatched(&self) -> bool {
        matches!(self.name, "3.0" | BASE | BASE_2017)
    }
}

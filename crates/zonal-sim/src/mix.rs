//! What building a kernel asks of memory, and files in the page cache: kinds, sizes and lifetimes.
//!
//! These are assumptions, but for the facts of Linux on x86-64 among them: no published profile
//! of a build's requests by order and lifetime was found.
//!
//! ```
//! use zonal_sim::mix::kbuild;
//! let all: usize = kbuild::SLAB_ORDERS.iter().map(|(_, percent)| percent).sum();
//! assert_eq!(all, 100);
//! ```

/// Pages that Linux lists or frees together: a pagevec up to 4.14.
pub const PAGEVEC: usize = 14;

pub use zonal_scenario::{highalloc, kbuild};

/// Files that go through the page cache, for `page-cache` and `page-cache-fits`.
pub mod page_cache {
    /// Frames of the published machines: 8 GiB. An inference: 3 of 8 GiB are 37.5 %, and
    /// 37.1 % are published for a walk that spreads by the size of zones.
    pub const REAL_FRAMES: u64 = 1 << 21;
    /// Memory that is DMA32 where files fit, in thousandths: 3 of 8 GiB.
    pub const DMA32_FITS: u64 = 375;
    /// The same on the machine with files twice as large as memory. Fitted on the velocities of
    /// 3.16-rc1, whose walk spreads by the size of zones.
    pub const DMA32_TWICE: u64 = 419;
    /// Memory that is used for something else than files, in thousandths. Fitted on the share of
    /// DMA32 under 3.0, which takes from it what does not fit elsewhere.
    pub const USED: u64 = 45;
    /// What the disk does, in bytes a second: published for one reader under 3.16-rc1 (121.88 MB/s).
    pub const DISK: f64 = 121.88 * 1_048_576.0;
    /// Pages that are read at once: 128 KiB, as in Linux.
    pub const WINDOW: usize = 32;
    /// Pages that reclaim frees at once, as in Linux.
    pub const SWAP_CLUSTER: usize = 32;
    /// Background reclaim looks at one page in 2 to this of a zone's list a turn, as in Linux.
    pub const PRIORITY: u32 = 12;
    /// Memory that may be dirty before writers write back themselves, in thousandths: half way between the limit of
    /// 20 % and where Linux begins to slow writers down, which is half way from the flusher's. The page cache counts in
    /// whole hundredths.
    pub const DIRTY: u64 = 170;
    /// The same before the flusher begins, as in Linux.
    pub const BACKGROUND: u64 = 100;
    /// How long a task waits that can do nothing but wait, in ms: a guess.
    pub const AGAIN_MS: f64 = 1.0;
    /// Streams begin within this many ms: a guess.
    pub const BEGIN_MS: f64 = 1.0;
    /// How often a stream asks for a page before it goes without.
    pub const TRIES: usize = 10_000;
}

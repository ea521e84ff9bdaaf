//! What building a kernel asks of memory: kinds, sizes and lifetimes, for whoever imitates it.
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

/// A build as it runs: processes that come and go beside a page cache and slabs of fixed size.
pub mod kbuild {
    /// Processes of a CPU at a time.
    pub const JOBS: usize = 4;
    /// One process in so many is a shell or make, the others compile.
    pub const SMALL_ONE_IN: usize = 3;
    /// Page faults of a small process, from and to.
    pub const SMALL: (usize, usize) = (100, 399);
    /// Page faults of a compiler, from and to.
    pub const LARGE: (usize, usize) = (500, 2999);
    /// Page faults of a process before another runs, at most.
    pub const BURST: usize = 64;
    /// Page faults to a page-table page: address spaces are sparse.
    pub const FAULTS_PER_TABLE: usize = 64;
    /// One page fault in so many reads a file.
    pub const CACHE_ONE_IN: usize = 8;
    /// Frames the page cache keeps.
    pub const CACHE_FRAMES: usize = 4096;
    /// Frames the page cache drops at once.
    pub const DROP: usize = 32;
    /// Slab blocks that live.
    pub const SLAB_BLOCKS: usize = 256;
    /// Share of each order in the slabs, in percent.
    pub const SLAB_ORDERS: [(u8, usize); 4] = [(0, 45), (1, 25), (2, 15), (3, 15)];
    /// Order of a kernel stack: a fact of Linux.
    pub const STACK_ORDER: u8 = 2;
}

/// Builds that fill memory with page cache, for `stress-highalloc`.
pub mod highalloc {
    /// Blocks that are asked for, in percent of those that memory has. As in mmtests.
    pub const SHARE: usize = 95;
    /// Compilers of a CPU at a time.
    pub const JOBS: usize = 4;
    /// Page faults and reads in a step.
    pub const STEP: usize = 32;
    /// Pages that a compiler maps, from and to.
    pub const MAPPED: (usize, usize) = (128, 640);
    /// Pages that a compiler reads, from and to.
    pub const READ: (usize, usize) = (64, 192);
    /// Pages of the object that a compiler writes.
    pub const OBJECT: usize = 16;
    /// Page faults to a page table.
    pub const FAULTS_PER_TABLE: usize = 64;
    /// Order of a kernel stack: a fact of Linux.
    pub const STACK_ORDER: u8 = 2;
    /// Cache pages to a slab block.
    pub const PAGES_PER_SLAB: u64 = 16;
    /// One slab block in so many is never freed by reclaim.
    pub const SLAB_PINNED_ONE_IN: usize = 4;
    /// Kernel objects that outlive their compiler, in percent of memory at most.
    pub const KERNEL_SHARE: usize = 2;
    /// Cache pages that reclaim drops at once, as in Linux.
    pub const SWAP_CLUSTER: usize = 32;
    /// Cache pages dropped for every slab block looked at.
    pub const SCAN_SLABS: usize = 16;
    /// Pageblocks a zone that Linux keeps free where huge pages are transparent.
    pub const HUGE_PAGEBLOCKS: u64 = 11;
}

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
    /// Memory that may be dirty before writers wait, in thousandths: half way between the limit of
    /// 20 % and where Linux begins to slow writers down, which is half way from the flusher's.
    pub const DIRTY: u64 = 175;
    /// The same before the flusher begins, as in Linux.
    pub const BACKGROUND: u64 = 100;
    /// Pages that the flusher writes at once: 1 MiB.
    pub const FLUSH: usize = 256;
    /// How long a writer waits that finds too much dirty, in ms: a guess.
    pub const PAUSE_MS: f64 = 10.0;
    /// How long somebody waits that can do nothing but wait, in ms: a guess.
    pub const AGAIN_MS: f64 = 1.0;
    /// Streams begin within so many ms: a guess.
    pub const BEGIN_MS: f64 = 1.0;
    /// How often a stream asks for a page before it goes without.
    pub const TRIES: usize = 10_000;
}

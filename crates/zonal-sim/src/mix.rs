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

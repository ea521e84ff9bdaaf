//! Builds that fill memory with page cache, for `stress-highalloc` on threads and simulated.
//!
//! ```
//! assert_eq!(zonal_scenario::highalloc::SHARE, 95);
//! ```

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
/// Of this many slab blocks, reclaim never frees one.
pub const SLAB_PINNED_ONE_IN: usize = 4;
/// Kernel objects that outlive their compiler, in percent of memory at most.
pub const KERNEL_SHARE: usize = 2;
/// Cache pages that reclaim drops at once, as in Linux.
pub const SWAP_CLUSTER: usize = 32;
/// Cache pages dropped for every slab block looked at.
pub const SCAN_SLABS: usize = 16;
/// Pageblocks a zone that Linux keeps free where huge pages are transparent.
pub const HUGE_PAGEBLOCKS: u64 = 11;

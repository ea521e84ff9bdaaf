//! What building a kernel asks of memory: processes that come and go beside a page cache and slabs
//! of fixed size. The bench runs it on threads, the simulator on virtual CPUs.
//!
//! These are assumptions, but for the facts of Linux on x86-64 among them: no published profile
//! of a build's requests by order and lifetime was found.
//!
//! ```
//! let all: usize = zonal_scenario::kbuild::SLAB_ORDERS.iter().map(|(_, percent)| percent).sum();
//! assert_eq!(all, 100);
//! ```

/// Processes of a CPU at a time.
pub const JOBS: usize = 4;
/// One process in this many is a shell or make, the others compile.
pub const SMALL_ONE_IN: usize = 3;
/// Page faults of a small process, from and to.
pub const SMALL: (usize, usize) = (100, 399);
/// Page faults of a compiler, from and to.
pub const LARGE: (usize, usize) = (500, 2999);
/// Page faults of a process before another runs, at most.
pub const BURST: usize = 64;
/// Page faults to a page-table page: address spaces are sparse.
pub const FAULTS_PER_TABLE: usize = 64;
/// Of this many page faults, one reads a file.
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

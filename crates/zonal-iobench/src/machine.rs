//! The machines of the tables, and what is assumed of them.
//!
//! ```
//! use zonal_iobench::machine::Machine;
//!
//! let desktop = Machine::named("desktop_2xRAM_ext3").expect("it is in the tables");
//! assert_eq!(desktop.frames * 4096, 8 << 30);
//! assert!(zonal_disk::builtin(desktop.disk).is_some());
//! ```

use zonal_cfq::units::Span;

/// A machine of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name in the tables.
    pub name: &'static str,
    /// The disk that stands for its own: one that `zonal-disk` has built in.
    pub disk: &'static str,
    /// Frames of its memory. An inference: 3 of 8 GiB are 37.5 %, and 37.1 % are published.
    pub frames: u64,
    /// Memory that is DMA32, in thousandths.
    pub dma32: u64,
    /// Whether only rows of its unpatched kernel may have set anything of it.
    pub put_aside: bool,
}

/// All of them.
pub const MACHINES: [Machine; 5] = [
    Machine {
        name: "desktop_2xRAM_ext3",
        disk: "desktop_2014",
        frames: 1 << 21,
        // 3 of 8 GiB; the base row says 37.1 %.
        dma32: 375,
        put_aside: false,
    },
    Machine {
        name: "better_desktop",
        disk: "better_desktop_2014",
        frames: 1 << 21,
        dma32: 375,
        put_aside: false,
    },
    Machine { name: "laptop", disk: "laptop_2014", frames: 1 << 21, dma32: 375, put_aside: true },
    Machine {
        name: "second_machine",
        disk: "second_2014",
        frames: 1 << 21,
        // Fitted on the velocities of 3.16-rc1, whose walk spreads by the size of zones.
        dma32: 419,
        put_aside: true,
    },
    // That of the lists of 2017, of which nothing is published: a disk as the desktop's, and as much
    // memory as bonnie's rate of making files says, whose files have twice as much together.
    Machine {
        name: "desktop",
        disk: "desktop_2014",
        frames: 1 << 22,
        // 3 of 16 GiB.
        dma32: 188,
        put_aside: false,
    },
];

impl Machine {
    /// The machine of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        MACHINES.into_iter().find(|machine| machine.name == name)
    }
}

/// Memory that is used for something else than files, in thousandths, all in Normal. Taken over from
/// the simulator of many cores, which fitted it on the allocations of 3.0.
pub const USED: u64 = 45;
/// `min_free_kbytes` in frames, as Linux sets it where huge pages are transparent: 11 pageblocks for
/// each of three zones, but no more than a part of memory.
pub const MIN_FREE: u64 = 3 * 11 * 512;
/// Of memory, the part that `min_free_kbytes` may be.
pub const MIN_FREE_PART: u64 = 20;
/// The smallest memory: 16 MiB, with which the watermarks leave room for a window of every reader.
pub const LEAST_FRAMES: u64 = 4096;
/// One part in this number of the higher zone is kept from those that could have used it.
pub const RESERVE_RATIO: u64 = 256;
/// Percent of memory that may be dirty, and from which on the flusher writes.
pub const DIRTY_PERCENT: (u64, u64) = (20, 10);

/// What things take on a CPU. All but one are assumptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Reclaim looks at a page.
    pub scan: Span,
    /// A page is copied to a reader, which calls `read` for each.
    pub read: Span,
    /// A page is written by `write`: allocated, copied, noted by the file system.
    pub write: Span,
    /// A task that waited for the disk goes on.
    pub wake: Span,
    /// A file is made, besides its pages.
    pub create: Span,
    /// One is looked up and opened.
    pub open: Span,
    /// One is removed, besides its pages. Fitted on files deleted in order by the kernel of 2017
    /// ([`BASE_2017`](crate::kernel::BASE_2017)).
    pub remove: Span,
}

/// What is assumed.
pub const COSTS: Costs = Costs {
    scan: Span(1_000),
    read: Span(1_500),
    write: Span(3_000),
    wake: Span(20_000),
    create: Span(30_000),
    open: Span(10_000),
    remove: Span(11_400),
};

/// Requests of one direction that the scheduler takes. Linux's own number is 128; the queue of the base
/// was 2195 long at most (`disk_latency`, 3.16-rc1, max avgqz), so it was raised there.
pub const REQUESTS: u32 = 2048;
/// Pages of a file that lie in a row while others grow: the largest window that ext3 reserves.
pub const EXTENT: u64 = 1024;

//! The rows in sections, as a reader wants them: what was asked of which machine.
//!
//! ```
//! use zonal_reproduce::sections::SECTIONS;
//!
//! assert!(SECTIONS.iter().any(|section| section.id == "parallel-free"));
//! ```

use super::facts::Table;
use super::rows::Row;

/// Rows of one table that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name in file names and links.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What was done, in a sentence or two.
    pub about: &'static str,
    /// The table its rows are from.
    pub table: Table,
    /// The machine its rows are of.
    pub machine: &'static str,
    /// The workload, or what the names of all start with.
    pub workload: &'static str,
}

/// All sections; each row is in exactly one.
pub const SECTIONS: [Section; 16] = [
    Section {
        id: "page-fault1-112",
        title: "page_fault1 on 112 CPUs",
        about: "Each CPU maps 128 MiB, touches every page and unmaps it, as a process of its own. \
                Shares of all cycles spent waiting for a lock, and what the score gains.",
        table: Table::ZoneLock,
        machine: "skylake_2s_112cpu",
        workload: "page_fault1",
    },
    Section {
        id: "parallel-free",
        title: "512 GB freed in parallel",
        about: "One process on a 4-socket machine exits, and all CPUs free its memory at once.",
        table: Table::ZoneLock,
        machine: "skylake_4s_768g",
        workload: "parallel_free",
    },
    Section {
        id: "thp-mix",
        title: "Huge pages beside single ones",
        about: "After memory was broken up, 56 processes fault huge pages while 56 fault single \
                ones. Published scores are of five minutes, simulated ones of the third and fourth \
                million single pages: before, huge pages still form, and the changes are others.",
        table: Table::ZoneLock,
        machine: "skylake_2s_112cpu_64g",
        workload: "thp_mix",
    },
    Section {
        id: "stress-highalloc",
        title: "Huge pages from full memory",
        about: "Page cache fills a 4 GB desktop, then huge pages are asked for, with a pause \
                between requests: compaction and reclaim do the work.",
        table: Table::ZoneLock,
        machine: "desktop_8cpu_4g",
        workload: "stress_highalloc",
    },
    Section {
        id: "bulk-frees",
        title: "What bulk frees find",
        about: "How often a per-CPU cache that gives frames back has only one migrate type to \
                give, after boot and after a kernel build. The number of bulk frees is given, \
                and the counts are scaled to it.",
        table: Table::ZoneLock,
        machine: "desktop",
        workload: "",
    },
    Section {
        id: "split-zones",
        title: "Four zone instances on 224 CPUs",
        about: "One zone of each node divided into four, each with a lock of its own: a kernel \
                build with 224 jobs, and 16 processes of page_fault1.",
        table: Table::ZoneLock,
        machine: "intel_2s_224cpu",
        workload: "",
    },
    Section {
        id: "broadwell-processes",
        title: "page_fault1, 1 to 40 processes",
        about: "Two sockets of ten cores, two threads a core: processes of their own, so that \
                the allocator and the LRU lists are all they share.",
        table: Table::Broadwell,
        machine: "broadwell_2s_40cpu",
        workload: "page_fault1_processes",
    },
    Section {
        id: "broadwell-threads",
        title: "page_fault1, 1 to 40 threads",
        about: "The same as threads of one process, which share its address space and the lock \
                of that as well.",
        table: Table::Broadwell,
        machine: "broadwell_2s_40cpu",
        workload: "page_fault1_threads",
    },
    Section {
        id: "fair-zone",
        title: "Page cache over two zones",
        about: "tiobench with files of 80 % of memory: how many pages were allocated in DMA32 and \
                how many in Normal. Simulated with the page cache in its real size, and scaled to as \
                many pages.",
        table: Table::FairZone,
        machine: "desktop_2xRAM_ext3",
        workload: "",
    },
    Section {
        id: "fair-zone-velocity",
        title: "Two zones under reclaim",
        about: "tiobench with files twice as large as memory, on the reviewer's machine: pages \
                of each zone that reclaim looked at a second.",
        table: Table::FairZone,
        machine: "second_machine",
        workload: "",
    },
    Section {
        id: "batched-irq",
        title: "Interrupts off once for a list",
        about: "sparsetruncate-tiny: 256 files of 4 MiB that are all cached are truncated; the \
                time of each, when interrupts are turned off for every page and when for each list of \
                14 pages. And bonnie: the disk decides how fast files are made and read, and what is \
                cached of them how fast they are deleted.",
        table: Table::BatchedIrq,
        machine: "desktop",
        workload: "",
    },
    Section {
        id: "tiobench-desktop",
        title: "tiobench on the desktop",
        about: "Threads write, read, and write and read anywhere in files of twice the memory. What was measured is the disk under CFQ, and what the page cache kept of the files.",
        table: Table::Tiobench,
        machine: "desktop_2xRAM_ext3",
        workload: "",
    },
    Section {
        id: "tiobench-better-desktop",
        title: "tiobench on the better desktop",
        about: "The same on a slightly better desktop.",
        table: Table::Tiobench,
        machine: "better_desktop",
        workload: "",
    },
    Section {
        id: "tiobench-laptop",
        title: "tiobench on the laptop",
        about: "The same; this table was put aside, and its first result is shown.",
        table: Table::Tiobench,
        machine: "laptop",
        workload: "",
    },
    Section {
        id: "tiobench-second-machine",
        title: "tiobench on the reviewer's machine",
        about: "The same, with the reviewer's kernels; this table was put aside, and its first result is shown.",
        table: Table::Tiobench,
        machine: "second_machine",
        workload: "",
    },
    Section {
        id: "disk-latency",
        title: "The desktop's disk meanwhile",
        about: "What iostat said of the disk: means and largest values over intervals of 10 s.",
        table: Table::DiskLatency,
        machine: "desktop_2xRAM_ext3",
        workload: "",
    },
];

impl Section {
    /// Whether `row` is in it.
    #[must_use]
    pub fn holds(&self, row: &Row) -> bool {
        self.takes(row.table, &row.machine, &row.workload)
    }

    /// Whether rows of that table, machine and workload are in it.
    #[must_use]
    pub fn takes(&self, table: &str, machine: &str, workload: &str) -> bool {
        table == self.table.name() && machine == self.machine && workload.starts_with(self.workload)
    }

    /// Its rows, in their order.
    #[must_use]
    pub fn rows<'a>(&self, rows: &'a [Row]) -> Vec<&'a Row> {
        rows.iter().filter(|row| self.holds(row)).collect()
    }
}

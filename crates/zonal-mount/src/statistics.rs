//! The statistics file: a line for each number, as it is when the file is opened.

use std::fmt::Write as _;

use fuser::{FileAttr, FileType, INodeNo};
use zonal_cache::evict::Evict;

use crate::nodes::STATISTICS;
use crate::shared::Shared;
use std::time::SystemTime;

/// Bytes of a page.
const PAGE: u64 = 4096;

impl<E: Evict> Shared<E> {
    /// What the file says now.
    pub(crate) fn statistics_text(&self) -> String {
        let stats = self.cache().stats();
        let mut text = String::new();
        let mut line = |name: &str, value: u64| {
            let _ = writeln!(text, "{name} {value}");
        };
        line("memory_bytes", self.memory);
        line("bound_bytes", stats.bound as u64 * PAGE);
        line("used_bytes", stats.used as u64 * PAGE);
        line("dirty_bytes", stats.dirty * PAGE);
        line("resident_bytes", resident());
        line("pages_read", stats.read);
        line("pages_read_ahead", stats.ahead);
        line("read_requests", stats.reads);
        line("pages_written", stats.written);
        line("write_requests", stats.writes);
        line("pages_evicted", stats.evicted);
        line("pages_reclaimed", stats.reclaimed);
        line("direct_reclaims", stats.direct);
        line("direct_reclaim_nanos", stats.direct_nanos);
        line("pages_refaulted", stats.refaults);
        line("pages_copied", stats.copied);
        line("read_errors", stats.read_errors);
        line("write_errors", stats.write_errors);
        line("flush_errors", stats.flush_errors);
        line("pages_lost", stats.lost);
        line("inodes", self.nodes.len() as u64);
        line("idle_files", self.contents.idle() as u64);
        text
    }

    pub(crate) fn statistics_attr(&self) -> FileAttr {
        let now = SystemTime::now();
        FileAttr {
            ino: INodeNo(STATISTICS),
            size: self.statistics_text().len() as u64,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind: FileType::RegularFile,
            perm: 0o444,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE as u32,
            flags: 0,
        }
    }
}

/// Bytes of memory that this process has; 0 if the system does not say.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * PAGE
}

//! What the kernel may have against a region.

use crate::errno::Errno;
use std::fmt;
use zonal::units::FRAME_SIZE;

/// Why address space or memory could not be had, or not be treated as asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RegionError {
    /// A region has at least one byte.
    Empty,
    /// The kernel's pages are larger than a frame, and it treats none by itself.
    LargePages {
        /// Bytes of such a page.
        bytes: usize,
    },
    /// There is less address space left than that.
    NoAddressSpace {
        /// Bytes wanted.
        bytes: usize,
        /// What the kernel said.
        errno: Errno,
    },
    /// There is less memory than that.
    NoMemory {
        /// Bytes wanted.
        bytes: usize,
        /// What the kernel said.
        errno: Errno,
    },
    /// There are fewer huge pages in the kernel's pool.
    NoHugePages {
        /// Bytes wanted.
        bytes: usize,
        /// What the kernel said.
        errno: Errno,
    },
    /// A part is empty, not inside the region, or does not consist of whole frames; or not of whole huge pages,
    /// where these are [bound to a node](crate::numa::bind).
    BadPart {
        /// Where it starts, in bytes from the base.
        start: usize,
        /// Where it ends.
        end: usize,
        /// The length of the region.
        len: usize,
    },
    /// The kernel does not do that with this memory.
    Advice {
        /// Linux's number of the advice.
        advice: i32,
        /// What the kernel said.
        errno: Errno,
    },
    /// Another system call failed.
    Os {
        /// Its name.
        call: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

fn advice_name(advice: i32) -> &'static str {
    match advice {
        libc::MADV_HUGEPAGE => "MADV_HUGEPAGE",
        libc::MADV_DONTNEED => "MADV_DONTNEED",
        libc::MADV_FREE => "MADV_FREE",
        _ => "advice",
    }
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("a region of 0 bytes"),
            Self::LargePages { bytes } => {
                write!(f, "the kernel's pages of {bytes} bytes are larger than a frame")
            }
            Self::NoAddressSpace { bytes, errno } => {
                write!(f, "{bytes} bytes are more address space than there is: {errno}")
            }
            Self::NoMemory { bytes, errno } => {
                write!(f, "{bytes} bytes are more memory than there is: {errno}")
            }
            Self::NoHugePages { bytes, errno } => write!(
                f,
                "{} huge pages of 2 MiB are more than the kernel's pool has free \
                 (see /proc/sys/vm/nr_hugepages): {errno}",
                bytes / super::HUGE_PAGE
            ),
            // What is a part in all other respects.
            Self::BadPart { start, end, len }
                if start < end && end <= len && (start | end).is_multiple_of(FRAME_SIZE) =>
            {
                write!(
                    f,
                    "bytes {start} to {end} are no whole huge pages of a region of {len} bytes"
                )
            }
            Self::BadPart { start, end, len } => write!(
                f,
                "bytes {start} to {end} are no whole frames inside a region of {len} bytes"
            ),
            Self::Advice { advice, errno } => {
                write!(f, "the kernel refuses {} here: {errno}", advice_name(advice))
            }
            Self::Os { call, errno } => write!(f, "{call}: {errno}"),
        }
    }
}

impl std::error::Error for RegionError {}

//! What a comparison can fail with.
//!
//! ```
//! use zonal_cli::error::Failure;
//! use zonal_iosched::error::IoschedError;
//!
//! assert_eq!(IoschedError::NoProcesses.exit_code(), 2);
//! ```

use std::io;
use std::path::PathBuf;

use zonal_cache::threads::OpenError;
use zonal_cfq::elevator::Refused;
use zonal_cli::error::{Failure, LabError};
use zonal_cli::size::human;
use zonal_disk::device::DeviceError;
use zonal_disk::disk_file::DiskFileError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum IoschedError {
    /// What any command can fail with.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A workload of nothing.
    #[error("--processes 0: a workload needs at least 1")]
    NoProcesses,
    /// The files do not fit, or are too small.
    #[error(
        "--size {}: {processes} processes need at least 128 KiB each (an fsync 1 MiB), and there \
         are {}", human(*bytes), human(*capacity)
    )]
    Size {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes there are.
        capacity: u64,
        /// Files.
        processes: u32,
    },
    /// No disk is called that.
    #[error("no disk is called `{name}`, and it is no file; known disks: {known}")]
    UnknownDisk {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A disk file cannot be read, or is malformed.
    #[error(transparent)]
    DiskFile(#[from] DiskFileError),
    /// The file cannot be used.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It would lose what it has.
    #[error(
        "{}: this workload writes, and would overwrite the file; --overwrite lets it, a file that \
         does not exist is made and removed again", path.display()
    )]
    WouldOverwrite {
        /// The file.
        path: PathBuf,
    },
    /// The scheduler refused a request that the workload was to keep it from.
    #[error("the scheduler refused a request: {0}")]
    Refused(#[from] Refused),
    /// The disk did.
    #[error("the disk refused a command: {0}")]
    Device(#[from] DeviceError),
    /// Requests are left that neither the scheduler nor the disk will ever do anything about.
    #[error("{0} is stuck: requests are queued, and nothing is under way")]
    Stuck(String),
    /// Requests of a file failed.
    #[error("{failed} requests failed, first with: {first}")]
    Failed {
        /// How many.
        failed: u64,
        /// What the system said first.
        first: String,
    },
    /// There is no page cache of that size.
    #[error("--cache {}: {source}", human(*bytes))]
    Cache {
        /// Bytes asked for.
        bytes: u64,
        /// What the cache said.
        source: OpenError,
    },
    /// A thread for requests cannot be had.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A thread of ours ended by itself.
    #[error("a thread of the workload panicked")]
    Panicked,
}

impl From<io::Error> for IoschedError {
    fn from(error: io::Error) -> Self {
        Self::Lab(LabError::Print(error))
    }
}

impl Failure for IoschedError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Lab(error) => error.exit_code(),
            Self::NoProcesses
            | Self::Size { .. }
            | Self::UnknownDisk { .. }
            | Self::DiskFile(_)
            | Self::Cache { .. }
            | Self::WouldOverwrite { .. } => 2,
            _ => 1,
        }
    }

    fn printing(&self) -> Option<&io::Error> {
        match self {
            Self::Lab(error) => error.printing(),
            _ => None,
        }
    }
}

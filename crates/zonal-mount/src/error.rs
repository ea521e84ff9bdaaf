//! What can go wrong with a mount.
//!
//! ```
//! use zonal_cli::error::Failure;
//! use zonal_mount::MountError;
//! let error = MountError::BoundTooSmall { asked: 4096, least: 1 << 20 };
//! assert_eq!(error.to_string(), "--memory 4 KiB: at least 1 MiB is needed");
//! assert_eq!(error.exit_code(), 2);
//! ```

use std::io;
use std::path::PathBuf;

use zonal_cache::threads::OpenError;
use zonal_cli::error::{Failure, LabError};
use zonal_cli::size::human;

/// Why there is no mount, or what was wrong at its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// What any command can fail with.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The directory or the mountpoint is missing, or cannot be looked at.
    #[error("{what} {}: {source}", path.display())]
    Unreachable {
        /// `directory` or `mountpoint`.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else.
    #[error("{what} {}: it is no directory", path.display())]
    NoDirectory {
        /// `directory` or `mountpoint`.
        what: &'static str,
        /// Where.
        path: PathBuf,
    },
    /// Files there would be hidden.
    #[error("mountpoint {}: it is not empty", path.display())]
    NotEmpty {
        /// Where.
        path: PathBuf,
    },
    /// What was mounted there has ended without being unmounted.
    #[error("mountpoint {0}: what was mounted there has ended; `umount {0}` first", path.display())]
    Dead {
        /// Where.
        path: PathBuf,
    },
    /// The mount would contain itself.
    #[error("mountpoint {}: it is inside of the directory {}", mountpoint.display(), directory.display())]
    Inside {
        /// Where it would be mounted.
        mountpoint: PathBuf,
        /// What would be mounted.
        directory: PathBuf,
    },
    /// The name of the statistics file is taken, or is none.
    #[error("--stats {name}: {why}")]
    Statistics {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no FUSE, or this process may not use it.
    #[error("cannot open /dev/fuse: {0}")]
    NoFuse(#[source] io::Error),
    /// The bound is too small to work with.
    #[error("--memory {}: at least {} is needed", human(*asked as u64), human(*least as u64))]
    BoundTooSmall {
        /// In bytes.
        asked: usize,
        /// In bytes.
        least: usize,
    },
    /// There is no memory for the cache, or no thread.
    #[error("cannot make the cache: {0}")]
    Cache(#[from] OpenError),
    /// The system does not mount it.
    #[error("cannot mount {}: {source}", path.display())]
    Mount {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is still in use, or this process may not unmount it.
    #[error("cannot unmount {}: {source}", path.display())]
    Unmount {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel said something that is not understood.
    #[error("the mount ended early: {0}")]
    Session(#[source] io::Error),
    /// Pages of files could not be written back.
    #[error("{pages} pages of {files} files could not be written back: {source}")]
    NotWritten {
        /// How many.
        pages: usize,
        /// Of how many files.
        files: usize,
        /// The last that the system said.
        source: io::Error,
    },
}

impl From<io::Error> for MountError {
    fn from(error: io::Error) -> Self {
        Self::Lab(LabError::Print(error))
    }
}

impl Failure for MountError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Lab(error) => error.exit_code(),
            Self::NoFuse(_)
            | Self::Cache(_)
            | Self::Mount { .. }
            | Self::Unmount { .. }
            | Self::Session(_)
            | Self::NotWritten { .. } => 1,
            _ => 2,
        }
    }

    fn printing(&self) -> Option<&io::Error> {
        match self {
            Self::Lab(error) => error.printing(),
            _ => None,
        }
    }
}

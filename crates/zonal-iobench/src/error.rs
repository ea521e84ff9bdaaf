//! What a benchmark can fail with.
//!
//! ```
//! use zonal_cli::error::Failure;
//! use zonal_iobench::error::IobenchError;
//!
//! let error = IobenchError::UnknownKernel { name: "2.4".into(), known: "3.0".into() };
//! assert_eq!(error.exit_code(), 2);
//! ```

use std::io;
use std::path::PathBuf;

use zonal_cfq::elevator::Refused;
use zonal_cli::error::{Failure, LabError};
use zonal_cli::size::human;
use zonal_disk::device::DeviceError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum IobenchError {
    /// What any command can fail with.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// No machine is called that.
    #[error("no machine of the tables is called `{name}`; known machines: {known}")]
    UnknownMachine {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// No kernel is called that.
    #[error("no kernel of the tables is called `{name}`; known kernels: {known}")]
    UnknownKernel {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// No disk is built in for the machine.
    #[error("no disk is called `{0}`")]
    UnknownDisk(String),
    /// The files do not fit.
    #[error("files of {} do not go on a disk of {}, or in a table of 2^32 pages",
            human(*bytes), human(*capacity))]
    Size {
        /// Bytes of all files.
        bytes: u64,
        /// Bytes of the disk.
        capacity: u64,
    },
    /// So little memory that its watermarks would leave nothing to use.
    #[error("{} of memory are too little: at least {}", human(*bytes), human(*least))]
    Memory {
        /// Bytes of memory.
        bytes: u64,
        /// Bytes that it takes.
        least: u64,
    },
    /// The scheduler refused a request.
    #[error("the scheduler refused a request: {0}")]
    Refused(#[from] Refused),
    /// The disk did.
    #[error("the disk refused a command: {0}")]
    Device(#[from] DeviceError),
    /// Threads are left that nothing will ever wake.
    #[error("{0} threads wait for something that will not come")]
    Stuck(usize),
    /// More files than may be open at once.
    #[error("{files} files are to be open at once, and a process may have {limit} (`ulimit -Hn`)")]
    OpenFiles {
        /// Files asked for.
        files: u64,
        /// Descriptors that there may be.
        limit: u64,
    },
    /// A file cannot be used.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The simulator of the allocator has no result.
    #[error("what freeing takes could not be simulated: {0}")]
    Simulator(String),
    /// A thread cannot be had.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A thread of ours ended by itself.
    #[error("a thread of the benchmark panicked")]
    Panicked,
}

impl From<io::Error> for IobenchError {
    fn from(error: io::Error) -> Self {
        Self::Lab(LabError::Print(error))
    }
}

impl Failure for IobenchError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Lab(error) => error.exit_code(),
            Self::UnknownMachine { .. }
            | Self::UnknownKernel { .. }
            | Self::UnknownDisk(_)
            | Self::Memory { .. }
            | Self::OpenFiles { .. }
            | Self::Size { .. } => 2,
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

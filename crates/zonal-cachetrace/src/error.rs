//! What can go wrong.
//!
//! ```
//! use zonal_cachetrace::error::CacheTraceError;
//! use zonal_cli::error::Failure;
//! let error = CacheTraceError::Empty { path: "trace.csv".into() };
//! assert_eq!(error.to_string(), "trace.csv: no request in it touches a page");
//! assert_eq!(error.exit_code(), 2);
//! ```

use std::io;
use std::path::PathBuf;

use zonal_cli::error::{Failure, LabError};

use crate::trace::LineError;

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum CacheTraceError {
    /// What any command can fail with.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The trace cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is none of the format.
    #[error("{}, line {number}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        number: usize,
        /// What is wrong with it.
        source: LineError,
    },
    /// A record is none of the format.
    #[error("{}, record {number}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The record, from 1.
        number: usize,
        /// What is wrong with it.
        source: LineError,
    },
    /// There is nothing in the trace.
    #[error("{}: no request in it touches a page", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A trace that is too large for the memory it would take.
    #[error("{}: it asks for more than {most} pages; --page makes them larger", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// How many there may be.
        most: u64,
    },
}

impl From<io::Error> for CacheTraceError {
    fn from(error: io::Error) -> Self {
        Self::Lab(LabError::Print(error))
    }
}

impl Failure for CacheTraceError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Lab(error) => error.exit_code(),
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

//! What recording and replaying can fail with.
//!
//! ```
//! use zonal_cli::error::Failure;
//! use zonal_replay::error::ReplayError;
//!
//! let error = ReplayError::TraceNeedsMore { given: 1 << 20, needed: 1 << 30 };
//! assert_eq!(error.to_string(), "--memory 1 MiB: the trace has 1 GiB in use at once");
//! assert_eq!(error.exit_code(), 2);
//! ```

use std::io;
use std::path::PathBuf;

use zonal_cli::error::{Failure, LabError};
use zonal_cli::interrupt::EXIT_CODE;
use zonal_cli::size::human;
use zonal_scenario::preset::UnknownPreset;
use zonal_sim::run::SimError;
use zonal_simulate::error::SimulateError;

/// Why there is no trace, or no replay of it.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// What any command can fail with.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// What a simulation can fail with.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// A preset that real memory cannot have.
    #[error(transparent)]
    Preset(#[from] UnknownPreset),
    /// Ctrl-C while a workload was recorded.
    #[error(
        "interrupted; {}",
        if *empty { "nothing was recorded, and no trace is written" }
        else { "the trace has what was recorded until then" }
    )]
    Interrupted {
        /// Whether no event was recorded until then.
        empty: bool,
    },
    /// A trace cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A trace cannot be read.
    #[error("{}: {source}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: crate::replay::trace::TraceError,
    },
    /// A trace that has more in use at once than there is.
    #[error("--memory {}: the trace has {} in use at once", human(*given), human(*needed))]
    TraceNeedsMore {
        /// Bytes there are.
        given: u64,
        /// Bytes it needs.
        needed: u64,
    },
    /// More memory for the events of a recording than there is.
    #[error(
        "--events {events}: the rings of the threads' CPUs ({cpus}) take {}, more than is available; \
         choose fewer events or threads",
        human(*needed)
    )]
    RingsNeedMore {
        /// Events asked for, for each CPU.
        events: usize,
        /// CPUs that need a ring.
        cpus: usize,
        /// Bytes they need.
        needed: u64,
    },
}

impl From<io::Error> for ReplayError {
    fn from(error: io::Error) -> Self {
        Self::Lab(LabError::Print(error))
    }
}

impl From<SimError> for ReplayError {
    fn from(error: SimError) -> Self {
        Self::Simulate(error.into())
    }
}

impl Failure for ReplayError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Lab(error) => error.exit_code(),
            Self::Simulate(error) => error.exit_code(),
            Self::Interrupted { .. } => EXIT_CODE,
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

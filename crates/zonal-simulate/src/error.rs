//! What a simulation can fail with.
//!
//! ```
//! use zonal_cli::error::Failure;
//! use zonal_simulate::error::SimulateError;
//!
//! let error = SimulateError::UnknownMachine { name: "x".into(), known: "y".into() };
//! assert_eq!(error.exit_code(), 2);
//! ```

use std::io;

use zonal_cli::error::{Failure, LabError};
use zonal_sim::run::SimError;

/// Why there is no result of a simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// What any command can fail with.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// No machine is called that.
    #[error("no machine is called `{name}`, and it is no file; known machines: {known}")]
    UnknownMachine {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A machine file cannot be read, or is malformed.
    #[error(transparent)]
    MachineFile(#[from] zonal_sim::machine::MachineError),
    /// The simulator refuses to run that.
    #[error(transparent)]
    Simulation(#[from] SimError),
}

impl From<io::Error> for SimulateError {
    fn from(error: io::Error) -> Self {
        Self::Lab(LabError::Print(error))
    }
}

impl Failure for SimulateError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Lab(error) => error.exit_code(),
            Self::Simulation(
                SimError::Machine(_) | SimError::Tasks { .. } | SimError::DoesNotFit { .. },
            ) => 2,
            Self::Simulation(_) => 1,
            Self::UnknownMachine { .. } | Self::MachineFile(_) => 2,
        }
    }

    fn printing(&self) -> Option<&io::Error> {
        match self {
            Self::Lab(error) => error.printing(),
            _ => None,
        }
    }
}

//! What can go wrong while a machine is measured.
//!
//! ```
//! use zonal_calibrate::error::CalibrateError;
//! use zonal_cli::error::Failure;
//!
//! let error = CalibrateError::Exists { path: "box.toml".into() };
//! assert!(error.to_string().contains("--force"));
//! assert_eq!(error.exit_code(), 2);
//! ```

use std::io;
use std::path::PathBuf;

use super::survey::LEAST_ROUNDS;
use zonal_bench::rendezvous::Aborted;
use zonal_bench::subject::SubjectError;
use zonal_cli::error::Failure;
use zonal_cli::interrupt::EXIT_CODE;

/// Why there is no machine file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The file is there already.
    #[error("{} exists already; --force writes over it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The results cannot be printed.
    #[error("cannot print the results: {0}")]
    Print(#[source] io::Error),
    /// A thread cannot be started on a CPU.
    #[error("cannot start a thread on CPU {cpu}: {source}")]
    Thread {
        /// The CPU.
        cpu: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A measuring thread ended early.
    #[error("a measuring thread ended before its time")]
    Ended,
    /// Memory for the working sets cannot be had.
    #[error("no memory to measure with: {0}")]
    Memory(#[from] SubjectError),
    /// The kernel refused an advice that a measurement rests on.
    #[error("cannot {what}: {source}")]
    Advice {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Something that must be known could not be measured.
    #[error("{what} could not be measured: the value came out as {value}")]
    Senseless {
        /// The field of the machine file.
        what: String,
        /// What came out.
        value: f64,
    },
    /// There is no built-in machine to take from what cannot be measured.
    #[error("no built-in machine {name} to take from what cannot be measured here")]
    NoReference {
        /// Its name.
        name: &'static str,
    },
    /// The machine was so busy that the file would say what others did to it.
    #[error(
        "the machine was too busy to be measured, so nothing is written: {}; try again when it is \
         idle, without --quick if it is large, or have --force write the file as it is",
        what_was_wrong(*rounds, *wanted, disturbed)
    )]
    Busy {
        /// Rounds of samples that there was time for.
        rounds: usize,
        /// Rounds that there should have been.
        wanted: usize,
        /// Names of what was disturbed in every sample.
        disturbed: Vec<String>,
    },
    /// Ctrl-C, after what was measured was shown.
    #[error(
        "interrupted after {rounds} of {wanted} rounds; what was measured until then is shown{}",
        if *unwritten { no_file() } else { String::new() }
    )]
    Interrupted {
        /// Rounds of samples that were done.
        rounds: usize,
        /// Rounds that there should have been.
        wanted: usize,
        /// Whether a file was asked for and not written.
        unwritten: bool,
    },
    /// The simulator does not take the file.
    #[error("the machine file would not be accepted: {0}")]
    Refused(String),
}

/// Why a survey that was interrupted makes no file.
fn no_file() -> String {
    format!(
        ", but no file is written: it needs at least {LEAST_ROUNDS} rounds, and of each value a \
         sample in which no thread lost its CPU"
    )
}

fn what_was_wrong(rounds: usize, wanted: usize, disturbed: &[String]) -> String {
    let few = (rounds < LEAST_ROUNDS).then(|| {
        format!("time was up after {rounds} of {wanted} rounds, and {LEAST_ROUNDS} are needed")
    });
    let names = disturbed.join(", ");
    let lost = (!disturbed.is_empty())
        .then(|| format!("in every sample of these a thread lost its CPU: {names}"));
    few.into_iter().chain(lost).collect::<Vec<_>>().join("; ")
}

impl Failure for CalibrateError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted { .. } => EXIT_CODE,
            Self::Exists { .. } | Self::Unwritable { .. } => 2,
            _ => 1,
        }
    }

    fn printing(&self) -> Option<&io::Error> {
        match self {
            Self::Print(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Aborted> for CalibrateError {
    fn from(_: Aborted) -> Self {
        Self::Ended
    }
}

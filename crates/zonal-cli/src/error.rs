//! What the command can say went wrong, and the exit code that goes with it.
//!
//! ```
//! use zonal_cli::error::{Failure, LabError};
//!
//! assert_eq!(LabError::ZeroThreads.exit_code(), 2);
//! assert!(LabError::ZeroThreads.to_string().contains("at least 1"));
//! ```

use std::error::Error;
use std::io;
use std::path::PathBuf;

use crate::interrupt::EXIT_CODE;
use crate::size::human;

/// What commands fail with, but for what only one of them knows of.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// `--threads 0`.
    #[error("--threads 0: a workload needs at least 1 thread")]
    ZeroThreads,
    /// More threads than there are CPUs to pin them to.
    #[error(
        "--threads {asked}: each thread is pinned to a CPU of its own, and this process may use \
         {available}"
    )]
    TooManyThreads {
        /// Threads asked for.
        asked: usize,
        /// CPUs there are.
        available: usize,
    },
    /// None of the thread counts fits the workload.
    #[error("{workload} needs {wanted}; none of --threads {given} is")]
    ThreadsDoNotFit {
        /// The workload.
        workload: &'static str,
        /// What it needs.
        wanted: &'static str,
        /// What was given.
        given: String,
    },
    /// A subject that there is not.
    #[error("no subject is called `{name}`; known subjects: {known}")]
    UnknownSubject {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A preset that there is not.
    #[error("no preset is called `{name}`; known presets: {known}")]
    UnknownPreset {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The names and the path together leave nothing.
    #[error("nothing to measure: no subject chosen is built in with the path `{path}`")]
    NothingChosen {
        /// The path.
        path: String,
    },
    /// More memory than the machine has.
    #[error(
        "--memory {}: this machine has {}; to manage more frames than there are, none of them \
         touched, add --overcommit",
        human(*asked), human(*total)
    )]
    MoreThanThereIs {
        /// Bytes asked for.
        asked: u64,
        /// Bytes the machine has.
        total: u64,
    },
    /// Not enough memory free to touch what the run would touch.
    #[error(
        "the subjects of this run would come to hold {} at once, and {} is available; choose \
         fewer subjects or threads, or less memory",
        human(*needed), human(*available)
    )]
    TouchesTooMuch {
        /// Bytes the run would make resident.
        needed: u64,
        /// Bytes available.
        available: u64,
    },
    /// Too few frames for the workload.
    #[error("--memory {}: {workload} on {threads} threads needs at least {}",
        human(*asked), human(*needed))]
    TooLittleMemory {
        /// Bytes asked for.
        asked: u64,
        /// The workload.
        workload: &'static str,
        /// Threads it would run on.
        threads: usize,
        /// Bytes it needs.
        needed: u64,
    },
    /// `--touch` with a workload that does not touch.
    #[error("--touch: {workload} does not write to its frames; page-fault1 and random-free do")]
    DoesNotTouch {
        /// The workload.
        workload: &'static str,
    },
    /// An option of another workload.
    #[error("{option}: has no meaning for {workload}; {of} takes it")]
    OptionDoesNotApply {
        /// The option.
        option: &'static str,
        /// The workload.
        workload: &'static str,
        /// The workload that takes it.
        of: &'static str,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// One file for two things, of which the second would replace the first.
    #[error("{first} and {second} name the same file")]
    SameFile {
        /// An option.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// Ctrl-C, after what was measured was shown.
    #[error("interrupted; what was done until then is shown")]
    Interrupted,
    /// The results cannot be printed.
    #[error("cannot print the results: {0}")]
    Print(#[from] io::Error),
    /// The machine would not say what it is, or let threads be pinned.
    #[error("cannot {what}: {source}")]
    Machine {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// No subject came to a result, or one that was named did not.
    #[error("no result for {who}")]
    NoResult {
        /// Who has none.
        who: String,
    },
    /// No table, section, machine or workload of the published numbers has that name.
    #[error("--only {name}: no table, section, machine or workload is called that; known: {known}")]
    NothingCalled {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A chart cannot be drawn.
    #[error("cannot draw the chart {name}: {why}")]
    Chart {
        /// The chart.
        name: String,
        /// Why.
        why: String,
    },
    /// A run that was to be recorded, or a replay, gave out.
    #[error("{who} failed: {why}")]
    Gave {
        /// What failed.
        who: String,
        /// Why.
        why: String,
    },
    /// The memory for the arena cannot be had.
    #[error("cannot open the arena: {0}")]
    Arena(#[source] Box<dyn Error + Send + Sync>),
}

/// What a command's `main` asks of its error.
pub trait Failure: Error {
    /// The exit code: 2 if the arguments are at fault, 130 after Ctrl-C, 1 otherwise.
    fn exit_code(&self) -> u8;

    /// What the system said, if it is that the results cannot be printed.
    fn printing(&self) -> Option<&io::Error> {
        None
    }
}

impl Failure for LabError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted => EXIT_CODE,
            Self::Gave { .. }
            | Self::Print(_)
            | Self::Machine { .. }
            | Self::NoResult { .. }
            | Self::Chart { .. } => 1,
            _ => 2,
        }
    }

    fn printing(&self) -> Option<&io::Error> {
        match self {
            Self::Print(error) => Some(error),
            _ => None,
        }
    }
}

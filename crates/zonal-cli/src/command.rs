//! The end of a command: what it says and the code it exits with.
//!
//! ```
//! use std::process::ExitCode;
//! use zonal_cli::command::finish;
//! use zonal_cli::error::LabError;
//!
//! assert_eq!(finish(Ok::<(), LabError>(()), &mut Vec::new()), ExitCode::SUCCESS);
//! assert_eq!(finish(Err(LabError::ZeroThreads), &mut Vec::new()), ExitCode::from(2));
//! ```

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use crate::error::{Failure, LabError};

/// Flushes `out`, says on stderr what went wrong, and gives the exit code.
///
/// A reader who closed the pipe has seen enough (`zonal bench all | head`): that is success.
#[must_use]
pub fn finish<E: Failure>(result: Result<(), E>, out: &mut dyn Write) -> ExitCode {
    match result {
        Ok(()) => {
            out.flush().map_or_else(|error| failed(&LabError::Print(error)), |()| ExitCode::SUCCESS)
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &impl Failure) -> ExitCode {
    if error.printing().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    eprintln!("zonal: {error}");
    ExitCode::from(error.exit_code())
}

//! What the `main` of every program does: the command line is read, Ctrl-C is watched, the command
//! runs; then what it says went wrong, and the code it exits with.
//!
//! ```
//! use clap::{Parser, Subcommand};
//! use std::process::ExitCode;
//! use zonal_cli::command::{Cli, finish};
//! use zonal_cli::error::LabError;
//!
//! #[derive(Subcommand)]
//! enum Command {
//!     Count { to: u32 },
//! }
//!
//! let Command::Count { to } = Cli::parse_from(["zonal", "count", "3"]).command;
//! assert_eq!(to, 3);
//! assert_eq!(finish(Ok::<(), LabError>(()), &mut Vec::new()), ExitCode::SUCCESS);
//! assert_eq!(finish(Err(LabError::ZeroThreads), &mut Vec::new()), ExitCode::from(2));
//! ```

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::error::Error;
use clap::{Parser, Subcommand};

use crate::error::{Failure, LabError};
use crate::interrupt;
use crate::terminal;

/// Columns of help on a wide terminal.
const READABLE: usize = 100;

/// The part of the `zonal` command that this program has.
#[derive(Debug, Parser)]
#[command(name = "zonal", version)]
pub struct Cli<C: Subcommand> {
    /// What to do.
    #[command(subcommand)]
    pub command: C,
}

/// The arguments of this process.
///
/// # Errors
///
/// The exit code where there is nothing to run: help or the version was asked for and is printed,
/// or could not be; or the arguments are wrong, which is said on stderr.
pub fn parse<C: Parser>() -> Result<C, ExitCode> {
    parse_from(std::env::args_os())
}

/// As [`parse`], of other arguments, the first of which is the program.
///
/// ```
/// use std::process::ExitCode;
/// use zonal_cli::command::parse_from;
///
/// #[derive(clap::Parser)]
/// struct Line {
///     number: u32,
/// }
/// assert!(parse_from::<Line>(["zonal", "7"]).is_ok_and(|line| line.number == 7));
/// assert_eq!(parse_from::<Line>(["zonal", "seven"]).err(), Some(ExitCode::from(2)));
/// assert_eq!(parse_from::<Line>(["zonal", "--help"]).err(), Some(ExitCode::SUCCESS));
/// ```
///
/// # Errors
///
/// As [`parse`].
pub fn parse_from<C: Parser>(
    line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<C, ExitCode> {
    within(line).map_err(|said: Error| {
        let printed = said.print().and_then(|()| io::stdout().flush());
        match printed {
            _ if said.use_stderr() => ExitCode::from(2),
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&LabError::Print(error)),
        }
    })
}

/// Reads the command line with help that the terminal has room for, and that is no wider than is easily read.
fn within<C: Parser>(
    line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<C, Error> {
    let mut command = C::command().bin_name("zonal").term_width(terminal::width().min(READABLE));
    let mut matches = command.try_get_matches_from_mut(line)?;
    C::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Reads the command line, watches Ctrl-C, lets `run` do what was asked for and [finishes](finish).
#[must_use]
pub fn start<C: Subcommand, E: Failure>(
    run: impl FnOnce(&C, &mut dyn Write) -> Result<(), E>,
) -> ExitCode {
    let Cli { command } = match parse::<Cli<C>>() {
        Ok(line) => line,
        Err(code) => return code,
    };
    interrupt::watch();
    let mut out = io::stdout().lock();
    let result = run(&command, &mut out);
    finish(result, &mut out)
}

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

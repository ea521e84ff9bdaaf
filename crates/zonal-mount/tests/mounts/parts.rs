//! Other processes of the tests: this program again, with another part to play.

use crate::{mapped, silent, watchdog};
use libtest_mimic::Failed;
use std::io;
use std::process::{Command, ExitCode};

/// Names the part.
const VARIABLE: &str = "ZONAL_MOUNT_TEST_PART";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Watches a mount.
    Watchdog,
    /// Mounts what never answers, and asks.
    Silent,
    /// Writes more by a mapping than there is space for.
    Filler,
}

/// The program as that part, to be started.
pub(crate) fn again(part: Part, arguments: &[String]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(VARIABLE, format!("{part:?}")).args(arguments);
    Ok(command)
}

/// Plays the part of this process, if it has one.
pub(crate) fn play() -> Option<ExitCode> {
    let part = std::env::var(VARIABLE).ok()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parts = [Part::Watchdog, Part::Silent, Part::Filler];
    let part = parts.into_iter().find(|it| format!("{it:?}") == part);
    let done = match part {
        Some(Part::Watchdog) => watchdog::serve(&arguments),
        Some(Part::Silent) => silent::ask(&arguments),
        Some(Part::Filler) => mapped::fill(&arguments),
        None => Err(Failed::from("no such part")),
    };
    Some(match done {
        Ok(code) => ExitCode::from(code as u8),
        Err(error) => {
            eprintln!("{}", error.message().unwrap_or("it failed"));
            ExitCode::FAILURE
        }
    })
}

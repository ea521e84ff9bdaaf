//! Other processes of the tests: this program again, with another part to play.

use crate::{mapped, mapping, silent, watchdog};
use libtest_mimic::Failed;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, ExitCode, Output};
use std::thread;
use std::time::{Duration, Instant};

/// Names the part.
const VARIABLE: &str = "ZONAL_MOUNT_TEST_PART";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Watches a mount.
    Watchdog,
    /// Mounts what never answers, and asks.
    Silent,
    /// Looks at a piece of a mapped file, and may change it.
    Mapper,
    /// Looks at a mapped file that has become shorter below.
    Reader,
    /// Writes more by a mapping than there is space for.
    Filler,
}

/// The program as that part, to be started.
pub(crate) fn again(part: Part, arguments: &[impl AsRef<OsStr>]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(VARIABLE, format!("{part:?}")).args(arguments);
    Ok(command)
}

/// What a process said that ended well. A signal is a failure with its name.
pub(crate) fn success(output: Output) -> Result<Vec<u8>, Failed> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {said}", output.status).into())
}

/// Waits for the end of a process that says little, with a sign of progress now and then. One that does not end
/// within `limit` is killed.
pub(crate) fn end_of(
    mut child: Child,
    limit: Duration,
    progress: impl Fn(),
) -> Result<Output, Failed> {
    let end = Instant::now() + limit;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            child.kill()?;
            // It is not waited for: it may be in a call on a mount, until that is gone.
            return Err(format!("it did not end in {limit:?}, and was killed").into());
        }
        progress();
        thread::sleep(Duration::from_millis(20));
    }
    Ok(child.wait_with_output()?)
}

/// Plays the part of this process, if it has one.
pub(crate) fn play() -> Option<ExitCode> {
    let part = std::env::var(VARIABLE).ok()?;
    // Some end by a signal, and leave nothing to look at.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parts = [Part::Watchdog, Part::Silent, Part::Mapper, Part::Reader, Part::Filler];
    let part = parts.into_iter().find(|it| format!("{it:?}") == part);
    let done = match part {
        Some(Part::Watchdog) => watchdog::serve(&arguments),
        Some(Part::Silent) => silent::ask(&arguments),
        Some(Part::Mapper) => mapping::serve(&arguments),
        Some(Part::Reader) => mapped::read(&arguments),
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

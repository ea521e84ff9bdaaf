//! Programs that run two at a time; each shows what it said when it has ended.

use anyhow::{Context, Result};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// A program that has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// What it wrote, to its output and its errors.
    pub(crate) said: String,
    pub(crate) time: Duration,
}

/// Runs all, in this order, and tells `ended` of each as it ends. The first error that it returns ends the others.
pub(crate) fn two_at_a_time<T>(
    programs: impl IntoIterator<Item = (T, Command)>,
    mut ended: impl FnMut(T, Ended) -> Result<()>,
) -> Result<()> {
    let (mut waiting, mut running) = (programs.into_iter(), Vec::new());
    loop {
        while running.len() < 2
            && let Some((what, command)) = waiting.next()
        {
            running.push((what, Beside::start(command)?));
        }
        let mut at = None;
        for (index, (_, program)) in running.iter_mut().enumerate() {
            if program.process.try_wait()?.is_some() {
                at = Some(index);
            }
        }
        match at {
            Some(at) => {
                let (what, program) = running.swap_remove(at);
                ended(what, program.end()?)?;
            }
            None if running.is_empty() => return Ok(()),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A program that runs.
struct Beside {
    process: Child,
    said: NamedTempFile,
    start: Instant,
}

impl Beside {
    fn start(mut command: Command) -> Result<Self> {
        let said = NamedTempFile::new()?;
        // One offset for both.
        let out = said.reopen()?;
        let err = out.try_clone()?;
        let spawned = command.stdout(out).stderr(err).spawn();
        let process = spawned.with_context(|| format!("{command:?} cannot be started"))?;
        Ok(Self { process, said, start: Instant::now() })
    }

    fn end(mut self) -> Result<Ended> {
        let status = self.process.wait()?;
        let said = std::fs::read(self.said.path())?;
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok(Ended { status, said, time: self.start.elapsed() })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // If another failed; one that has ended is not there any more.
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::ensure;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn each_says_its_own_and_how_it_ended() {
        let scripts = ["echo one", "echo two >&2; exit 3", "echo three"];
        let mut all = Vec::new();
        let programs = scripts.iter().enumerate().map(|(at, script)| (at, shell(script)));
        two_at_a_time(programs, |at, ended| {
            all.push((at, ended.status.code(), ended.said));
            Ok(())
        })
        .unwrap();
        all.sort();
        let said = |at, code, text: &str| (at, Some(code), text.to_owned());
        assert_eq!(all, [said(0, 0, "one\n"), said(1, 3, "two\n"), said(2, 0, "three\n")]);
    }

    #[test]
    fn two_run_at_once_and_an_error_ends_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("there");
        let waits = format!("until [ -e {0} ]; do sleep 0.01; done; exit 1", file.display());
        let makes = format!("touch {}; exec sleep 600", file.display());
        let start = Instant::now();
        let both = [((), shell(&waits)), ((), shell(&makes))];
        let outcome = two_at_a_time(both, |(), Ended { status, .. }| {
            ensure!(status.success(), "it failed");
            Ok(())
        });
        assert!(outcome.is_err());
        assert!(start.elapsed() < Duration::from_secs(300), "the other was waited for");
    }
}

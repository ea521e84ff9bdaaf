//! The command in a process of its own, with what it mounts.

use crate::space::{self, Space};
use crate::watchdog::{LIMIT, Watchdog};
use libtest_mimic::Failed;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// More bytes than any of the tests has below.
const ENOUGH: usize = 320 << 20;

/// Does what unmounts until nothing uses the mount: a file that a test has closed is still open for a moment in
/// a child that another test starts, until that has become its program.
pub(crate) fn once_unused<E>(
    mut unmount: impl FnMut() -> Result<(), E>,
    is_busy: impl Fn(&E) -> bool,
) -> Result<(), E> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match unmount() {
            Err(error) if is_busy(&error) && Instant::now() < end => {
                thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// As [`once_unused`], of a place.
pub(crate) fn unmount_unused(root: &Path) -> rustix::io::Result<()> {
    let busy = |error: &Errno| *error == Errno::BUSY;
    once_unused(|| unmount(root, UnmountFlags::empty()), busy)
}

/// Killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) below: PathBuf,
    pub(crate) root: PathBuf,
    watchdog: Option<Watchdog>,
    space: Option<Space>,
    _directory: TempDir,
}

impl Process {
    pub(crate) fn new(memory: &str) -> Result<Self, Failed> {
        Self::start(memory, None)
    }

    /// Below is space for no more than `bytes`.
    pub(crate) fn with_space(memory: &str, bytes: usize) -> Result<Self, Failed> {
        Self::start(memory, Some(bytes))
    }

    /// Below is more space, or less.
    pub(crate) fn resize_space(&self, bytes: usize) -> Result<(), Failed> {
        self.space.as_ref().ok_or("it has all there is")?;
        Ok(space::resize(&self.below, bytes)?)
    }

    fn start(memory: &str, space: Option<usize>) -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        let place = directory.path().canonicalize()?;
        let there = rustix::fs::statvfs(&place)?;
        // Where there is little, it is not what is tested.
        let is_small = there.f_bavail * there.f_frsize < ENOUGH as u64;
        let space = space.or(is_small.then_some(ENOUGH));
        let (below, root) = (place.join("below"), place.join("root"));
        fs::create_dir(&below)?;
        fs::create_dir(&root)?;
        let space = space.map(|bytes| Space::new(&below, bytes)).transpose()?;
        let child = Self::command(&below, &root, memory).spawn()?;
        let (watchdog, _directory) = (None, directory);
        let mut process = Self { child, below, root, watchdog, space, _directory };
        process.mounted()?;
        Ok(process)
    }

    fn command(below: &PathBuf, root: &PathBuf, memory: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal-mount"));
        command.arg("mount").args([below, root]).args(["--memory", memory, "--threads", "2"]);
        command.stdout(Stdio::piped());
        command
    }

    /// Waits until it is mounted.
    fn mounted(&mut self) -> Result<(), Failed> {
        let mut line = String::new();
        let out = self.child.stdout.as_mut().ok_or("it has an output")?;
        BufReader::new(out).read_line(&mut line)?;
        if !line.contains("is mounted on") {
            return Err(format!("it is not mounted: {line:?}").into());
        }
        self.watchdog = Some(Watchdog::new(&self.root, LIMIT, LIMIT)?);
        Ok(())
    }

    /// Mounts it once more, after the process has ended.
    pub(crate) fn again(&mut self, memory: &str) -> Result<(), Failed> {
        self.child = Self::command(&self.below, &self.root, memory).spawn()?;
        self.mounted()
    }

    /// The same, with what it says of errors for the test to read.
    pub(crate) fn again_heard(&mut self, memory: &str) -> Result<(), Failed> {
        let mut command = Self::command(&self.below, &self.root, memory);
        self.child = command.stderr(Stdio::piped()).spawn()?;
        self.mounted()
    }

    /// Unmounts it, with all written back.
    pub(crate) fn unmount(&mut self) -> Result<(), Failed> {
        unmount_unused(&self.root)?;
        let mut said = String::new();
        self.child.stdout.take().ok_or("it has an output")?.read_to_string(&mut said)?;
        assert!(self.child.wait()?.success() && said.contains("Unmounted"), "{said}");
        Ok(())
    }

    /// Tells the watchdog.
    pub(crate) fn progress(&self) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.progress();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = unmount(&self.root, UnmountFlags::DETACH);
    }
}

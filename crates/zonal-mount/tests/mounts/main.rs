//! Real mounts. Where this process cannot mount, they are listed as ignored, and one line says why.

mod errors;
mod forgotten;
mod killed;
mod mapped;
mod mapping;
mod model;
mod modes;
mod operations;
mod parts;
mod process;
mod silent;
mod space;
mod watchdog;

use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use tempfile::TempDir;
use watchdog::{LIMIT, Watchdog};
use zonal_cache::S3Fifo;
use zonal_mount::{LEAST_MEMORY, MountError, Mounted, Options, can_mount};

/// A directory that is mounted by this process, until dropped. None of its files may be mapped here: see
/// [`Mounted`].
pub(crate) struct World {
    pub(crate) mounted: Option<Mounted<S3Fifo>>,
    /// After the mount, whose end it watches too.
    watchdog: Option<Watchdog>,
    pub(crate) below: PathBuf,
    pub(crate) root: PathBuf,
    _directory: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().canonicalize().expect("it is there");
        let (below, root) = (place.join("below"), place.join("root"));
        fs::create_dir(&below).expect("made");
        fs::create_dir(&root).expect("made");
        // With the smallest bound.
        let options = Options { memory: LEAST_MEMORY, threads: 2, ..Options::default() };
        let mounted = Some(Mounted::start(&below, &root, &options).expect("it is mounted"));
        let watchdog = Some(Watchdog::new(&root, LIMIT, LIMIT).expect("it watches"));
        Self { mounted, watchdog, below, root, _directory: directory }
    }

    /// Unmounts it, with all written back.
    pub(crate) fn unmount(&mut self) {
        let mounted = self.mounted.take().expect("it is mounted");
        let busy = |error: &MountError| matches!(error, MountError::Unmount { source, .. } if source.kind() == ErrorKind::ResourceBusy);
        process::once_unused(|| mounted.unmount(), busy).expect("it is not in use");
        let stats = mounted.wait().expect("all is written back");
        assert!(stats.used <= stats.bound);
        drop(self.watchdog.take());
    }
}

type Test = (&'static str, fn() -> Result<(), Failed>);

fn main() -> ExitCode {
    if let Some(code) = parts::play() {
        return code;
    }
    let tests: Vec<Test> = [
        errors::TESTS,
        forgotten::TESTS,
        operations::TESTS,
        mapped::TESTS,
        model::TESTS,
        modes::TESTS,
        killed::TESTS,
        silent::TESTS,
    ]
    .concat();
    let why = match (can_mount(), rustix::process::geteuid().is_root()) {
        (Err(error), _) => Some(error.to_string()),
        (_, false) => Some("only root can mount".to_owned()),
        _ => None,
    };
    if let Some(why) = &why {
        eprintln!("{} tests that mount are not run: {why}", tests.len());
    }
    let trials = tests
        .into_iter()
        .map(|(name, test)| Trial::test(name, test).with_ignored_flag(why.is_some()));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

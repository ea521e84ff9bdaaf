//! Real mounts. Where this process cannot mount, they are listed as ignored, and one line says why; so are those that
//! need more than there is.

mod errors;
mod forgotten;
mod killed;
mod mapped;
mod mapping;
mod model;
mod modes;
mod needs;
mod operations;
mod parts;
mod process;
mod silent;
mod space;
mod watchdog;
mod whole;

use libtest_mimic::{Arguments, Failed, Trial};
use needs::Need;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use tempfile::TempDir;
use watchdog::{LIMIT, Watchdog};
use zonal_cache::S3Fifo;
use zonal_mount::{LEAST_MEMORY, MountError, Mounted, Options};

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
    let tests: [(&[Need], &[Test]); 11] = [
        (&[], errors::TESTS),
        (&[], forgotten::TESTS),
        (&[], operations::TESTS),
        (&[Need::Attributes], operations::WITH_ATTRIBUTES),
        (&[Need::Allocation], operations::ALLOCATING),
        (&[Need::Mapping], mapped::TESTS),
        (&[Need::Mapping, Need::Allocation], model::TESTS),
        (&[], modes::TESTS),
        (&[], killed::TESTS),
        (&[], silent::TESTS),
        (&[], whole::TESTS),
    ];
    let missing = needs::missing();
    let in_need = |of: &[Need], need: &Need| *need == Need::Mount || of.contains(need);
    for (need, why) in &missing {
        let count = tests.iter().filter(|(of, _)| in_need(of, need)).map(|(_, tests)| tests.len());
        eprintln!("{} tests that mount are not run: {why}", count.sum::<usize>());
    }
    let trials = tests.into_iter().flat_map(|(of, tests)| {
        let ignored = missing.keys().any(|need| in_need(of, need));
        tests.iter().map(move |&(name, test)| Trial::test(name, test).with_ignored_flag(ignored))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

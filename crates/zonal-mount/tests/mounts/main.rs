//! Real mounts. Where this process cannot mount, they are listed as ignored, and one line says why.

mod errors;
mod killed;
mod model;
mod operations;

use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;
use zonal_cache::S3Fifo;
use zonal_mount::{LEAST_MEMORY, Mounted, Options, can_mount};

/// A directory that is mounted, until dropped.
pub(crate) struct World {
    pub(crate) mounted: Option<Mounted<S3Fifo>>,
    pub(crate) below: PathBuf,
    pub(crate) root: PathBuf,
    _directory: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (below, root) = (directory.path().join("below"), directory.path().join("root"));
        fs::create_dir(&below).expect("made");
        fs::create_dir(&root).expect("made");
        let mut world = Self { mounted: None, below, root, _directory: directory };
        world.mount();
        world
    }

    /// Mounts it, with the smallest bound.
    pub(crate) fn mount(&mut self) {
        let options = Options { memory: LEAST_MEMORY, threads: 2, ..Options::default() };
        let mounted = Mounted::start(&self.below, &self.root, &options);
        self.mounted = Some(mounted.expect("it is mounted"));
    }

    /// Unmounts it, with all written back.
    pub(crate) fn unmount(&mut self) {
        let mounted = self.mounted.take().expect("it is mounted");
        mounted.unmount().expect("it is not in use");
        let stats = mounted.wait().expect("all is written back");
        assert!(stats.used <= stats.bound);
    }
}

type Test = (&'static str, fn() -> Result<(), Failed>);

fn main() {
    let tests: Vec<Test> = [errors::TESTS, operations::TESTS, model::TESTS, killed::TESTS].concat();
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
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

//! tiobench on real files: the same program as on the simulated machine, by threads.
//!
//! ```no_run
//! use std::path::Path;
//! use zonal_iobench::program::{Phase, Tiobench};
//! use zonal_iobench::real::measure;
//!
//! let tiobench = Tiobench { threads: 4, pages: 4096, random: 400, seed: 1 };
//! let outcome = measure(Path::new("/tmp/somewhere"), &tiobench)?;
//! println!("{:.1} MiB/s", outcome.mib_s(Phase::SeqRead));
//! # Ok::<(), zonal_iobench::error::IobenchError>(())
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::Builder;
use std::time::{Duration, Instant};

use zonal_cfq::units::Span;
use zonal_cli::interrupt;
use zonal_cli::together::together;

use crate::descriptors;
use crate::error::IobenchError;
use crate::program::{Blocks, Phase, Tiobench};
use crate::simulated::{Outcome, PhaseOutcome};

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// A file that is removed when it is done with.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing is to be done about one that is gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IobenchError {
    let path = path.to_owned();
    move |source| IobenchError::File { what, path, source }
}

/// Runs all phases in a directory, in files that are made for it and removed again. Of the outcome,
/// rates and times are filled in: what the machine's own page cache does is not seen from here.
///
/// # Errors
///
/// [`IobenchError::OpenFiles`] if not all files may be open at once, [`IobenchError::File`] if one cannot
/// be made, written or read; no file is left.
/// [`IobenchError::Thread`] if there are no threads, [`IobenchError::Lab`] if it was interrupted.
pub fn measure(directory: &Path, tiobench: &Tiobench) -> Result<Outcome, IobenchError> {
    descriptors::need(tiobench.threads.into())?;
    let mut files = Vec::new();
    for thread in 0..tiobench.threads.max(1) {
        let path = directory.join(format!("zonal-tiobench-{}-{thread}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(&path).map_err(failed("make", &path))?;
        files.push((file, Scratch(path)));
    }
    let mut outcome = Outcome::default();
    let began = Instant::now();
    for phase in Phase::ALL {
        outcome.phases[phase as usize] = all(&files, tiobench, phase)?;
        if interrupt::is_requested() {
            return Err(zonal_cli::error::LabError::Interrupted.into());
        }
    }
    outcome.elapsed = span(began.elapsed());
    Ok(outcome)
}

fn span(time: Duration) -> Span {
    Span(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// All threads do a phase.
fn all(
    files: &[(File, Scratch)],
    tiobench: &Tiobench,
    phase: Phase,
) -> Result<PhaseOutcome, IobenchError> {
    let work = |thread: usize, (file, path): &(File, Scratch)| {
        // No truncation: there are as many threads as the arguments name.
        let blocks = tiobench.blocks(phase, thread as u32);
        let began = Instant::now();
        let done = one(file, blocks, phase);
        (began, Instant::now(), done.map_err(failed(verb(phase), &path.0)))
    };
    let threads = files.iter().map(|file| (Builder::new(), file));
    let each = together(threads, work).map_err(IobenchError::Thread)?;
    let (mut blocks, mut first, mut last) = (0, None, None);
    for result in each {
        let (began, ended, done) = result.map_err(|_| IobenchError::Panicked)?;
        blocks += done?;
        first = first.into_iter().chain([began]).min();
        last = last.into_iter().chain([ended]).max();
    }
    let elapsed = first.zip(last).map(|(first, last)| last - first).unwrap_or_default();
    Ok(PhaseOutcome { blocks, elapsed: span(elapsed), hits: 0 })
}

const fn verb(phase: Phase) -> &'static str {
    if phase.writes() { "write" } else { "read" }
}

/// A thread's part; how many blocks it did.
fn one(file: &File, blocks: Blocks, phase: Phase) -> io::Result<u64> {
    let mut buffer = vec![0x5a; BLOCK as usize];
    let mut done = 0;
    for block in blocks {
        let at = block * BLOCK;
        if phase.writes() {
            file.write_all_at(&buffer, at)?;
        } else {
            file.read_exact_at(&mut buffer, at)?;
        }
        done += 1;
        if done % 1024 == 0 && interrupt::is_requested() {
            break;
        }
    }
    if phase.writes() {
        file.sync_all()?;
    }
    Ok(done)
}

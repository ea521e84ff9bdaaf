//! Benchmarks of many files in a directory: sparsetruncate, bonnie's files, and what dbench's clients do
//! with data. They make what they need and remove it again.
//!
//! - sparsetruncate, tiny (Gorman 2017): 16 directories of 16 files of 4 MiB whose pages are all cached,
//!   which are truncated one after the other; the time of each.
//! - bonnie: files are made, looked up and removed, once in the order of their names and once in any;
//!   operations a second.
//! - dbench: each client makes a file, writes to it in pieces, flushes it, reads it and removes it, over
//!   and over, for some time; MiB/s, and the longest of these rounds.
//!
//! What they do is in [`many_files`](crate::many_files), for the simulated machine as well.
//!
//! ```
//! let directory = tempfile::tempdir()?;
//! let mut steps = 0;
//! let times = zonal_iobench::files::sparsetruncate(directory.path(), 4, 64, &mut |_| steps += 1)?;
//! assert_eq!((times.len(), steps), (4, 8), "made, then truncated");
//! assert_eq!(directory.path().read_dir()?.count(), 0, "all is removed again");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread::Builder;
use std::time::{Duration, Instant};

use zonal_cli::interrupt;
use zonal_cli::together::together;
use zonal_scenario::truncate::DIRECTORIES;

use crate::descriptors;
use crate::error::IobenchError;
use crate::many_files::{Act, Bonnie, Clients, Dbench, Pass, Step as ClientStep};

/// Operations of bonnie between two steps that are told, so that telling is not measured.
const STEP: usize = 64;

/// Bytes that bonnie writes or reads at once, at most.
const PIECE: u64 = 1 << 20;

/// How far a benchmark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Files done with, counted once for each thing that is done with them.
    pub done: u64,
    /// As many as there will be.
    pub all: u64,
    /// What is done.
    pub what: &'static str,
}

/// Who is told how far a benchmark is.
pub type Told<'a> = &'a mut dyn FnMut(Step);

/// A directory that is removed, with what is in it, when it is done with.
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path, what: &str) -> Result<Self, IobenchError> {
        let path = parent.join(format!("zonal-{what}-{}", std::process::id()));
        fs::create_dir(&path).map_err(failed("make", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays: nothing else is to be done about it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IobenchError {
    let path = path.to_owned();
    move |source| IobenchError::File { what, path, source }
}

/// Truncates a number of files of a number of pages, all cached; the time of each, in the order in which
/// they were truncated. After Ctrl-C of those that were.
///
/// # Errors
///
/// [`IobenchError::OpenFiles`] if not all may be open at once, [`IobenchError::File`]; nothing is left in
/// the directory.
pub fn sparsetruncate(
    directory: &Path,
    files: u32,
    pages: u64,
    told: Told<'_>,
) -> Result<Vec<Duration>, IobenchError> {
    let mut step = |done, what| told(Step { done, all: 2 * u64::from(files), what });
    descriptors::need(files.into())?;
    let scratch = Scratch::new(directory, "sparsetruncate")?;
    let mut open = Vec::new();
    for number in 0..files {
        let directory = scratch.0.join((number % DIRECTORIES).to_string());
        fs::create_dir_all(&directory).map_err(failed("make", &directory))?;
        let path = directory.join(number.to_string());
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(failed("make", &path))?;
        file.set_len(pages.saturating_mul(4096)).map_err(failed("grow", &path))?;
        // A hole is read: that fills the page cache and writes nothing.
        io::copy(&mut file, &mut io::sink()).map_err(failed("read", &path))?;
        open.push((file, path));
        step(open.len() as u64, "making");
        if interrupt::is_requested() {
            return Ok(Vec::new());
        }
    }
    let mut times = Vec::new();
    for (file, path) in &open {
        let began = Instant::now();
        file.set_len(0).map_err(failed("truncate", path))?;
        times.push(began.elapsed());
        step(u64::from(files) + times.len() as u64, "truncating");
        if interrupt::is_requested() {
            break;
        }
    }
    Ok(times)
}

/// Does all passes of bonnie: files a second of each. After Ctrl-C those of the passes that were done.
///
/// # Errors
///
/// [`IobenchError::File`]; nothing is left in the directory.
pub fn bonnie(
    directory: &Path,
    bonnie: &Bonnie,
    told: Told<'_>,
) -> Result<Vec<(Pass, f64)>, IobenchError> {
    let (mut done, all) = (0, 6 * u64::from(bonnie.files));
    let bytes = bonnie.pages.saturating_mul(4096);
    let mut buffer = vec![0x5a; bytes.min(PIECE) as usize];
    let scratch = Scratch::new(directory, "bonnie")?;
    let mut results = Vec::new();
    for pass in Pass::ALL {
        let (verb, doing) = match pass.act {
            Act::Create => ("make", "making"),
            Act::Read => ("read", "reading"),
            Act::Delete => ("remove", "removing"),
        };
        let names: Vec<u32> = bonnie.files_of(pass).collect();
        let began = Instant::now();
        for names in names.chunks(STEP) {
            told(Step { done, all, what: doing });
            if interrupt::is_requested() {
                return Ok(results);
            }
            for name in names {
                let path = scratch.0.join(format!("{name:08}"));
                act(pass.act, &path, bytes, &mut buffer).map_err(failed(verb, &path))?;
            }
            done += names.len() as u64;
        }
        let seconds = began.elapsed().as_secs_f64().max(1e-9);
        results.push((pass, f64::from(bonnie.files) / seconds));
    }
    Ok(results)
}

/// Does one thing with one file, which has `bytes` bytes, a buffer at a time.
fn act(act: Act, path: &Path, bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut file = match act {
        Act::Create => File::create_new(path)?,
        Act::Read => {
            fs::metadata(path)?;
            File::open(path)?
        }
        Act::Delete => return fs::remove_file(path),
    };
    let mut left = bytes;
    while left > 0 && !interrupt::is_requested() {
        let piece = left.min(buffer.len() as u64);
        let buffer = &mut buffer[..piece as usize];
        if act == Act::Create {
            file.write_all(buffer)?;
        } else {
            file.read_exact(buffer)?;
        }
        left -= piece;
    }
    Ok(())
}

/// Has a number of clients write, flush, read and remove files for so long.
///
/// # Errors
///
/// [`IobenchError::File`], [`IobenchError::Thread`]; nothing is left in the directory.
pub fn dbench(directory: &Path, dbench: &Dbench) -> Result<Clients, IobenchError> {
    let scratch = Scratch::new(directory, "dbench")?;
    let began = Instant::now();
    let work = |_, client: u32| {
        let path = scratch.0.join(client.to_string());
        let (mut rounds, mut longest) = (0, Duration::ZERO);
        while began.elapsed() < dbench.duration && !interrupt::is_requested() {
            let round = Instant::now();
            client_round(&path, dbench).map_err(failed("use", &path))?;
            longest = longest.max(round.elapsed());
            rounds += 1;
        }
        Ok::<(u64, Duration), IobenchError>((rounds, longest))
    };
    let threads = (0..dbench.clients).map(|client| (Builder::new(), client));
    let each = together(threads, work).map_err(IobenchError::Thread)?;
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    for result in each {
        let (its, its_longest) = result.map_err(|_| IobenchError::Panicked)??;
        rounds += its;
        longest = longest.max(its_longest);
    }
    Ok(Clients::of(dbench, rounds, longest, began.elapsed()))
}

fn client_round(path: &Path, dbench: &Dbench) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    let mut piece = vec![0x5a; dbench.piece as usize];
    for step in ClientStep::ROUND {
        match step {
            ClientStep::Write => (0..dbench.pieces()).try_for_each(|_| file.write_all(&piece))?,
            ClientStep::Flush => file.sync_all()?,
            ClientStep::Read => {
                file.rewind()?;
                (0..dbench.pieces()).try_for_each(|_| file.read_exact(&mut piece))?;
            }
            ClientStep::Remove => fs::remove_file(path)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_and_all_was_done() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut steps = Vec::new();
        let work = Bonnie { files: 100, pages: 3, seed: 1 };
        let results = bonnie(directory.path(), &work, &mut |step| steps.push(step));
        let results = results.expect("it runs");
        assert!(results.iter().map(|(pass, _)| *pass).eq(Pass::ALL));
        assert!(results.iter().all(|(_, rate)| *rate > 0.0), "{results:?}");
        assert!(steps.is_sorted_by_key(|step| step.done) && steps.len() == 12, "{steps:?}");
        let work = Dbench::of(2, Duration::from_millis(30));
        let clients = dbench(directory.path(), &work).expect("it runs");
        assert!(clients.rounds >= 2 && clients.mib_s > 0.0 && clients.longest > Duration::ZERO);
        assert_eq!(directory.path().read_dir().expect("it is there").count(), 0);
    }

    #[test]
    fn what_cannot_be_made_is_said() {
        let nowhere = Path::new("/nonexistent/nowhere");
        let error = sparsetruncate(nowhere, 1, 1, &mut |_| ()).expect_err("there is no such place");
        assert!(error.to_string().starts_with("cannot make /nonexistent"), "{error}");
    }
}

//! A pager for processes, as a virtual machine monitor is one: each client makes memory of its own that is not there, and sends
//! the descriptor of its page faults (`userfaultfd`) over a Unix socket. The pager fills it from a snapshot file when it is
//! first touched, by one cache for all: what one client has touched is there for the others, so the file is read once.
//!
//! ```text
//! cargo run --release -p zonal-cache --example pager
//! ```
//! Its clients are processes of the same program. It needs `/dev/userfaultfd`, or the right to the system call.

mod client;
mod handover;
mod memory;
mod serve;
mod uffd;

use client::{Kind, Task, Took, given_back, pattern};
use rustix::fd::OwnedFd;
use serve::{Pager, Report};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::thread;
use zonal_cache::faulty_store::Operation;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{Advice, Cache, CacheFile, FaultyStore, FileStore, Ring, S3Fifo};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of the snapshot.
const LEN: usize = 64 << 20;

/// Where clients come to.
struct Place {
    socket: PathBuf,
    listener: OwnedFd,
}

impl Place {
    fn new(directory: &Path) -> Result<Self> {
        let socket = directory.join("socket");
        Ok(Self { listener: handover::listener(&socket)?, socket })
    }

    fn spawn(&self, kind: Kind) -> Result<Child> {
        let task = Task { socket: self.socket.clone(), len: LEN, cpus: 1, kind };
        Ok(task.command()?.spawn()?)
    }

    /// Serves that many clients at once which touch all; how long they took, and what there is to say of them.
    fn serve(&self, pager: &Pager<'_>, clients: usize, kind: Kind) -> Result<(Took, Vec<Report>)> {
        let children = (0..clients).map(|_| self.spawn(kind)).collect::<Result<Vec<_>>>()?;
        let reports = pager.serve(&self.listener, clients)?;
        let mut all = Took { begin: u64::MAX, end: 0 };
        for child in children {
            let output = child.wait_with_output()?;
            if !output.status.success() {
                return Err(format!("a client ended by {}: {reports:?}", output.status).into());
            }
            let line = String::from_utf8(output.stdout)?;
            let took = Took::from_line(&line).ok_or_else(|| format!("{line:?} is no times"))?;
            all = Took { begin: all.begin.min(took.begin), end: all.end.max(took.end) };
        }
        Ok((all, reports))
    }
}

fn open(store: impl Store) -> Result<(Cache<S3Fifo>, CacheFile<S3Fifo>)> {
    let cache = Cache::<S3Fifo>::builder().memory(80 << 20).open()?;
    let file = cache.open(store)?;
    Ok((cache, file))
}

/// How long pages take, and that each is read once.
fn measure(place: &Place, snapshot: &Path) -> Result<()> {
    println!(
        "{} MiB of a snapshot; us a page, by the first process, a second, and two at once",
        LEN >> 20
    );
    for (name, step) in [("4 KiB", 4096), ("2 MiB", 2 << 20)] {
        let (cache, file) = open(FileStore::open(snapshot)?.with_ring(Ring::new(64).ok()))?;
        file.advise(if step == 4096 { Advice::Random } else { Advice::Sequential });
        let pager = Pager { file: &file, step, poison: true };
        let us = |took: Took, clients: usize| {
            (took.end - took.begin) as f64 / 1e3 / (LEN / 4096 * clients) as f64
        };
        let (first, reports) = place.serve(&pager, 1, Kind::Plain)?;
        let (second, _) = place.serve(&pager, 1, Kind::Plain)?;
        let (two, _) = place.serve(&pager, 2, Kind::Plain)?;
        let [first, second, two] = [us(first, 1), us(second, 1), us(two, 2)];
        println!("{name}: {first:.1} {second:.1} {two:.1}; {} faults", reports[0].faults);
        let (_, reports) = place.serve(&pager, 1, Kind::Balloon)?;
        assert_eq!(reports[0].filled, LEN / 4096 - given_back(LEN), "the rest is zero");
        assert_eq!(cache.stats().read, LEN as u64 / 4096, "each page was read once");
    }
    println!("what a client gave back was zero when it touched it again");
    Ok(())
}

/// One is killed in the middle, and the others do not see it.
fn kill(place: &Place, snapshot: &Path) -> Result<()> {
    let (cache, file) = open(FileStore::open(snapshot)?)?;
    let pager = Pager { file: &file, step: 4096, poison: true };
    thread::scope(|scope| {
        let serving = scope.spawn(|| pager.serve(&place.listener, 2));
        let mut killed = place.spawn(Kind::Half)?;
        let other = place.spawn(Kind::Plain)?;
        let out = killed.stdout.take().ok_or("it has an output")?;
        BufReader::new(out).read_line(&mut String::new())?;
        killed.kill()?;
        let (status, other) = (killed.wait()?, other.wait_with_output()?.status);
        let reports = serving.join().expect("it does not panic")?;
        for report in &reports {
            let is_killed = report.client.unsigned_abs() == killed.id();
            let (who, status) = if is_killed { ("killed", status) } else { ("other", other) };
            println!("of two clients the {who} one: {} pages, {status}", report.filled);
        }
        assert!(other.success() && reports.iter().all(|report| report.end.is_ok()), "{reports:?}");
        // Nothing of the one that was killed is pinned any more.
        cache.set_bound(64)?;
        Ok(())
    })
}

/// A page that cannot be read: the client gets `SIGBUS`, as from memory that is broken. Where the kernel cannot do so it is
/// told by the socket.
fn fail(place: &Place, snapshot: &Path) -> Result<()> {
    for poison in [true, false] {
        let bad =
            |operation| matches!(operation, Operation::Read { offset, .. } if offset >= 1 << 20);
        let (_cache, file) =
            open(FaultyStore::new(FileStore::open(snapshot)?, move |operation| {
                bad(operation).then_some(StoreError::IO)
            }))?;
        let child = place.spawn(Kind::Plain)?;
        let pager = Pager { file: &file, step: 4096, poison };
        let reports = pager.serve(&place.listener, 1)?;
        let status = child.wait_with_output()?.status;
        assert!(!status.success(), "a snapshot that cannot be read was");
        let Report { poisoned, end, .. } = &reports[0];
        println!("a snapshot that cannot be read ends its client: {status}");
        match (poisoned.first(), end) {
            (Some((offset, error)), Ok(())) => println!("byte {offset}, poisoned: {error}"),
            (_, Err(error)) => println!("not poisoned, and told: {error}"),
            (None, Ok(())) => return Err("the pager does not say why".into()),
        }
    }
    Ok(())
}

fn run() -> Result<()> {
    let directory = tempfile::tempdir_in(".")?;
    let snapshot = directory.path().join("snapshot");
    std::fs::write(&snapshot, pattern(LEN))?;
    File::open(&snapshot)?.sync_all()?;
    uffd::Uffd::new()?;
    let place = Place::new(directory.path())?;
    measure(&place, &snapshot)?;
    kill(&place, &snapshot)?;
    fail(&place, &snapshot)
}

fn main() -> ExitCode {
    if let Some(code) = client::ended() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

//! The example's pager, with clients that are processes of this program. Where the kernel gives no `userfaultfd` all are listed as
//! ignored, and one line says why.

#[path = "../../examples/pager/client.rs"]
mod client;
#[path = "../../examples/pager/handover.rs"]
mod handover;
mod malformed;
#[path = "../../examples/pager/memory.rs"]
mod memory;
#[path = "../../examples/pager/serve.rs"]
mod serve;
#[path = "../../examples/pager/uffd.rs"]
mod uffd;

use client::{Kind, Task, Took, given_back, pattern};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use serve::{Pager, Report, ServeError};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitCode, Output, Stdio, abort};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use uffd::{Uffd, Unavailable};
use zonal_cache::faulty_store::Operation;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{Cache, CacheError, CacheFile, FaultyStore, MemoryStore, S3Fifo};

const PAGE: usize = 4096;
/// No whole number of steps, nor are the regions of a client.
const PAGES: usize = 1029;
const LEN: usize = PAGES * PAGE;
const STEPS: [u64; 2] = [PAGE as u64, 2 << 20];
/// Longer than all of them take on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(120);

type Test = Result<(), Failed>;
type Named = (&'static str, fn() -> Test);

/// Where the clients of a test come to.
pub(crate) struct Place {
    pub(crate) socket: PathBuf,
    pub(crate) listener: OwnedFd,
    _directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Result<Self, Failed> {
        let _directory = tempfile::tempdir()?;
        let socket = _directory.path().join("socket");
        Ok(Self { listener: handover::listener(&socket)?, socket, _directory })
    }

    pub(crate) fn spawn(&self, kind: Kind, cpus: usize) -> Result<Child, Failed> {
        self.spawn_with(LEN, kind, cpus)
    }

    fn spawn_with(&self, len: usize, kind: Kind, cpus: usize) -> Result<Child, Failed> {
        let task = Task { socket: self.socket.clone(), len, cpus, kind };
        Ok(task.command()?.stderr(Stdio::piped()).spawn()?)
    }
}

/// A file of a cache that has room for it.
pub(crate) fn open(store: impl Store) -> Result<(Cache<S3Fifo>, CacheFile<S3Fifo>), Failed> {
    let cache = Cache::<S3Fifo>::builder().memory(LEN + (1 << 20)).open()?;
    let file = cache.open(store)?;
    Ok((cache, file))
}

/// Whether a client had all of its memory as it should be.
pub(crate) fn succeeded(child: Child) -> Test {
    let output = child.wait_with_output()?;
    let line = String::from_utf8_lossy(&output.stdout);
    let took = Took::from_line(&line).is_some_and(|took| took.begin < took.end);
    if output.status.success() && took { Ok(()) } else { Err(format!("{output:?}").into()) }
}

fn of<'a>(reports: &'a [Report], child: &Child) -> Result<&'a Report, Failed> {
    let report = reports.iter().find(|report| report.client.unsigned_abs() == child.id());
    Ok(report.ok_or("it was served")?)
}

/// Two clients of two threads each, and one of them gives memory back: each page of the snapshot is read once, and each page of a client is
/// filled once.
fn clients_share_pages() -> Test {
    for step in STEPS {
        let place = Place::new()?;
        let (cache, file) = open(MemoryStore::from(pattern(LEN)))?;
        let pager = Pager { file: &file, step, poison: true };
        let plain = place.spawn(Kind::Plain, 2)?;
        let balloon = place.spawn(Kind::Balloon, 2)?;
        let reports = pager.serve(&place.listener, 2)?;
        let filled = [of(&reports, &plain)?.filled, of(&reports, &balloon)?.filled];
        succeeded(plain)?;
        succeeded(balloon)?;
        assert_eq!(filled, [PAGES, PAGES - given_back(LEN)], "{reports:?}");
        assert!(reports.iter().all(|report| report.end.is_ok()), "{reports:?}");
        assert!(reports.iter().all(|it| it.faults >= LEN / step as usize), "{reports:?}");
        assert_eq!(cache.stats().read, PAGES as u64, "each page is read once");
    }
    Ok(())
}

/// A snapshot of four times what the cache may have: pages go to make room, those that two clients need at the same time too, and
/// each client has all bytes.
fn a_snapshot_is_larger_than_the_bound() -> Test {
    let (pages, bound) = (5 * PAGES, 5 * PAGES / 4);
    for step in STEPS {
        let place = Place::new()?;
        let cache = Cache::<S3Fifo>::builder().memory(bound * PAGE).open()?;
        let file = cache.open(MemoryStore::from(pattern(pages * PAGE)))?;
        let pager = Pager { file: &file, step, poison: true };
        let spawn = || place.spawn_with(pages * PAGE, Kind::Plain, 1);
        let clients = [spawn()?, spawn()?];
        let reports = pager.serve(&place.listener, 2)?;
        clients.into_iter().try_for_each(succeeded)?;
        for report in &reports {
            assert!(report.end.is_ok() && report.filled == pages, "{reports:?}");
        }
        let stats = cache.stats();
        assert!(stats.used <= bound && stats.bound == bound, "{stats:?}");
        assert!(stats.evicted as usize >= pages - bound, "{stats:?}");
        // Both clients read all of it, and a window may go before it is used.
        assert!((pages..3 * pages).contains(&(stats.read as usize)), "{stats:?}");
    }
    Ok(())
}

/// A page that is not read until it is let go.
#[derive(Default)]
struct Door {
    /// Whether a read has come to it, and whether it may go on.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Door {
    fn pass(&self) {
        let mut state = self.state.lock().expect("no thread panics with it");
        state.0 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(_, open)| !*open));
    }

    fn wait_until_met(&self) {
        let state = self.state.lock().expect("no thread panics with it");
        drop(self.changed.wait_while(state, |(met, _)| !*met));
    }

    fn open(&self) {
        self.state.lock().expect("no thread panics with it").1 = true;
        self.changed.notify_all();
    }
}

fn has(operation: Operation, at: u64) -> bool {
    matches!(operation, Operation::Read { offset, len } if (offset..offset + len).contains(&at))
}

/// One is killed while the pager reads a page for it, and the page comes when it is gone.
fn a_client_killed_in_a_fault_harms_no_other() -> Test {
    let (place, door) = (Place::new()?, Arc::new(Door::default()));
    let at_door = door.clone();
    let store = FaultyStore::new(MemoryStore::from(pattern(LEN)), move |operation| {
        if has(operation, 2 << 20) {
            at_door.pass();
        }
        None
    });
    let (cache, file) = open(store)?;
    let pager = Pager { file: &file, step: STEPS[0], poison: true };
    thread::scope(|scope| {
        let serving = scope.spawn(|| pager.serve(&place.listener, 2));
        let mut killed = place.spawn(Kind::Plain, 1)?;
        door.wait_until_met();
        let other = place.spawn(Kind::Plain, 1)?;
        killed.kill()?;
        let status = killed.wait()?;
        door.open();
        succeeded(other)?;
        let reports = serving.join().expect("it does not panic")?;
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        assert!(reports.iter().all(|report| report.end.is_ok()), "{reports:?}");
        let filled = of(&reports, &killed)?.filled;
        assert!(filled > 0 && filled < PAGES, "{reports:?}");
        assert_eq!(cache.stats().read, PAGES as u64, "each page is read once");
        // Nothing is pinned for it any more.
        Ok(cache.set_bound(16)?)
    })
}

/// One is killed that waits for nothing: its socket says so.
fn a_client_killed_between_faults_is_served_no_more() -> Test {
    let place = Place::new()?;
    let (cache, file) = open(MemoryStore::from(pattern(LEN)))?;
    let pager = Pager { file: &file, step: STEPS[0], poison: true };
    thread::scope(|scope| {
        let serving = scope.spawn(|| pager.serve(&place.listener, 1));
        let mut killed = place.spawn(Kind::Half, 1)?;
        let mut out = std::io::BufReader::new(killed.stdout.take().ok_or("it has an output")?);
        std::io::BufRead::read_line(&mut out, &mut String::new())?;
        killed.kill()?;
        assert_eq!(killed.wait()?.signal(), Some(libc::SIGKILL));
        let reports = serving.join().expect("it does not panic")?;
        assert!(reports[0].end.is_ok() && reports[0].filled == PAGES / 2, "{reports:?}");
        Ok(cache.set_bound(16)?)
    })
}

/// Serves a client that has a page which cannot be read.
fn unreadable(step: u64, poison: bool, bad: u64) -> Result<(Output, Report), Failed> {
    let place = Place::new()?;
    let store = FaultyStore::new(MemoryStore::from(pattern(LEN)), move |operation| {
        has(operation, bad).then_some(StoreError::IO)
    });
    let (_cache, file) = open(store)?;
    let child = place.spawn(Kind::Plain, 1)?;
    let mut reports = Pager { file: &file, step, poison }.serve(&place.listener, 1)?;
    Ok((child.wait_with_output()?, reports.remove(0)))
}

/// Whether the kernel has memory that is broken for one who asks: from Linux 6.6 on.
fn can_poison() -> Result<bool, Failed> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(str::parse::<u32>);
    let (major, minor) = numbers.next().zip(numbers.next()).ok_or("it has two numbers")?;
    Ok((major?, minor?) >= (6, 6))
}

/// Without bytes its client does not go on, and the pager says which are missing and why.
fn a_page_that_cannot_be_read_ends_its_client() -> Test {
    let (bad, error) = (3 << 20, CacheError::Store(StoreError::IO));
    for (step, poison) in [(STEPS[0], true), (STEPS[1], true), (STEPS[0], false), (STEPS[1], false)]
    {
        let (output, report) = unreadable(step, poison, bad)?;
        assert!(report.filled > 0 && report.filled < PAGES, "{report:?}");
        if poison && can_poison()? {
            assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
            assert_eq!(report.poisoned, [(bad, error)]);
            assert!(report.end.is_ok(), "{report:?}");
        } else {
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let text = ServeError::Unreadable(bad, error).to_string();
            assert_eq!(String::from_utf8(output.stderr)?, format!("the pager: {text}\n"));
            assert_eq!(report.end.expect_err("it is told").to_string(), text);
        }
    }
    Ok(())
}

/// Its memory is not zero then, as it would be if no process had the descriptor.
fn a_client_ends_with_its_pager() -> Test {
    let place = Place::new()?;
    let child = place.spawn(Kind::Plain, 2)?;
    let socket = accept_with(&place.listener, SocketFlags::CLOEXEC)?;
    drop(handover::receive(&socket, LEN as u64)?);
    // Enough to read what is not the snapshot's, if it could.
    thread::sleep(Duration::from_millis(100));
    drop(socket);
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr)?, "the pager is gone\n");
    Ok(())
}

fn main() -> ExitCode {
    if let Some(code) = client::ended() {
        return code;
    }
    let tests: [Named; 9] = [
        ("a_snapshot_is_larger_than_the_bound", a_snapshot_is_larger_than_the_bound),
        ("clients_share_pages", clients_share_pages),
        ("a_client_killed_in_a_fault_harms_no_other", a_client_killed_in_a_fault_harms_no_other),
        (
            "a_client_killed_between_faults_is_served_no_more",
            a_client_killed_between_faults_is_served_no_more,
        ),
        ("a_page_that_cannot_be_read_ends_its_client", a_page_that_cannot_be_read_ends_its_client),
        ("a_client_ends_with_its_pager", a_client_ends_with_its_pager),
        ("a_fault_elsewhere", malformed::a_fault_elsewhere),
        ("a_region_that_is_there_in_part", malformed::a_region_that_is_there_in_part),
        ("hand_overs_that_are_malformed", malformed::hand_overs_that_are_malformed),
    ];
    // Whatever else goes wrong, the tests say themselves.
    let missing = match Uffd::new() {
        Err(why @ Unavailable(Errno::PERM | Errno::NOSYS)) => Some(why),
        _ => None,
    };
    if let Some(why) = &missing {
        eprintln!("{} tests of the pager are not run: {why}", tests.len());
    }
    // A client that never comes, or never ends.
    thread::spawn(|| {
        thread::sleep(LIMIT);
        eprintln!("the tests of the pager do not end");
        abort()
    });
    let ignored = missing.is_some();
    let trials = tests.map(|(name, test)| Trial::test(name, test).with_ignored_flag(ignored));
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

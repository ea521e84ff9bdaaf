//! The watchdog itself, on a mount whose server never answers.

use crate::Test;
use crate::parts::{Part, again};
use crate::watchdog::{LIMIT, Watchdog};
use fuser::{Config, Filesystem, INodeNo, ReplyEntry, Request, Session};
use libtest_mimic::Failed;
use rustix::mount::{UnmountFlags, unmount};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("a_call_that_is_never_answered_fails", a_call_that_is_never_answered_fails),
    ("progress_is_no_standstill", progress_is_no_standstill),
    ("a_killed_process_that_waits_for_itself_ends", a_killed_process_that_waits_for_itself_ends),
    ("a_process_that_does_not_end_is_killed", a_process_that_does_not_end_is_killed),
];

const SHORT: Duration = Duration::from_millis(500);

/// Keeps its replies: one that is dropped answers.
#[derive(Clone, Default)]
struct Silent(Arc<Mutex<Vec<ReplyEntry>>>);

impl Silent {
    fn is_asked(&self) -> bool {
        !self.0.lock().expect("no test panics with it").is_empty()
    }
}

impl Filesystem for Silent {
    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        self.0.lock().expect("no test panics with it").push(reply);
    }
}

/// Mounts it, with a thread that serves.
fn mount_silent(root: &Path) -> Result<Silent, Failed> {
    let silent = Silent::default();
    let session = Session::new(silent.clone(), root, &Config::default())?;
    thread::spawn(move || session.run());
    Ok(silent)
}

/// The part of another process: is server and client in one. After the call it goes on for ever.
pub(crate) fn ask(arguments: &[String]) -> Result<i32, Failed> {
    let [root, limit] = arguments else { return Err("two arguments".into()) };
    let (root, limit) = (Path::new(root), Duration::from_millis(limit.parse()?));
    mount_silent(root)?;
    let _watchdog = Watchdog::new(root, limit, limit)?;
    println!("mounted");
    let error = fs::metadata(root.join("name")).expect_err("there is no answer");
    println!("{error}");
    loop {
        thread::sleep(SHORT);
    }
}

/// [`ask`] in another process, once it has mounted.
fn asking(root: &Path, limit: Duration) -> Result<Child, Failed> {
    let arguments = [root.into(), OsString::from(limit.as_millis().to_string())];
    let mut child = again(Part::Silent, &arguments)?.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().ok_or("an output")?).read_line(&mut line)?;
    // It says nothing if it stood still meanwhile, and was killed for that. How it ends is looked at later.
    assert!(matches!(&*line, "mounted\n" | ""), "{line}");
    Ok(child)
}

/// Waits for an end by SIGKILL: much longer than it takes, and not for ever.
fn expect_killed(mut child: Child, root: &Path) -> Result<(), Failed> {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            let _ = unmount(root, UnmountFlags::DETACH);
            assert_eq!(status.signal(), Some(9), "{status}");
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err("it does not end".into())
}

fn a_call_that_is_never_answered_fails() -> Result<(), Failed> {
    let root = tempfile::tempdir()?;
    let mountpoint = root.path().canonicalize()?;
    let silent = mount_silent(&mountpoint)?;
    let name = mountpoint.join("name");
    let asks = thread::spawn(move || fs::metadata(name));
    // A call on a connection that is aborted already fails in another way. One that does not come is aborted too.
    let end = Instant::now() + LIMIT / 2;
    while !silent.is_asked() && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    let watchdog = Watchdog::new(&mountpoint, SHORT, LIMIT)?;
    let error = asks.join().expect("it asks").expect_err("there is no answer");
    let aborted = rustix::io::Errno::CONNABORTED.raw_os_error();
    assert_eq!(error.raw_os_error(), Some(aborted), "{error}");
    assert!(watchdog.end(), "it says so");
    let _ = unmount(&mountpoint, UnmountFlags::DETACH);
    Ok(())
}

fn progress_is_no_standstill() -> Result<(), Failed> {
    let root = tempfile::tempdir()?;
    // On a busy machine the signs themselves may come too late.
    for limit in [4, 8, 16, 32].map(|times| times * SHORT) {
        let mountpoint = root.path().canonicalize()?;
        mount_silent(&mountpoint)?;
        let watchdog = Watchdog::new(&mountpoint, limit, LIMIT)?;
        for _ in 0..30 {
            watchdog.progress();
            thread::sleep(limit / 20);
        }
        let aborted = watchdog.end();
        let _ = unmount(&mountpoint, UnmountFlags::DETACH);
        if !aborted {
            return Ok(());
        }
    }
    Err("it was aborted after a longer time with progress".into())
}

fn a_killed_process_that_waits_for_itself_ends() -> Result<(), Failed> {
    let root = tempfile::tempdir()?;
    let mountpoint = root.path().canonicalize()?;
    let mut child = asking(&mountpoint, 2 * SHORT)?;
    // By then it waits for the answer: the kill alone would not end it.
    thread::sleep(SHORT);
    child.kill()?;
    expect_killed(child, &mountpoint)
}

fn a_process_that_does_not_end_is_killed() -> Result<(), Failed> {
    let root = tempfile::tempdir()?;
    let mountpoint = root.path().canonicalize()?;
    expect_killed(asking(&mountpoint, SHORT)?, &mountpoint)
}

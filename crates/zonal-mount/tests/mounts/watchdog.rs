//! A watchdog for tests that mount. A call on a mount whose server stands still waits in the kernel, and not
//! even SIGKILL ends a process that is server and client in one: its thread waits for an answer that only
//! another thread of the same dying process could give. So the watchdog is a process of its own, which needs
//! nothing of the one that it watches: after a time without a sign of progress it aborts the connection. Every
//! call on the mount then fails, and so does the test.

use crate::parts::{Part, again};
use libtest_mimic::Failed;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Longer than any test needs from one sign of progress to the next, also on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Its exit code once it had to abort a mount.
const ABORTED: i32 = 3;

/// Where the kernel lists the connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Watches one mount until [`end`](Self::end), or until it is dropped, which panics if the mount was aborted.
pub(crate) struct Watchdog(Option<Child>);

impl Watchdog {
    /// Watches what is mounted on `root`: nothing on the mount itself is asked for it, which might wait.
    /// Once the mount is aborted the process has `grace` to end, and is killed then.
    pub(crate) fn new(root: &Path, limit: Duration, grace: Duration) -> Result<Self, Failed> {
        let connection = connection_of(root)?.to_string();
        let [limit, grace] = [limit, grace].map(|time| time.as_millis().to_string());
        let arguments = [connection, limit, grace];
        let mut command = again(Part::Watchdog, &arguments)?;
        // A signal to the group of the tests is not for it.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0).spawn()?;
        Ok(Self(Some(child)))
    }

    /// Something has been done: the time begins anew.
    pub(crate) fn progress(&self) {
        if let Some(mut to) = self.0.as_ref().and_then(|child| child.stdin.as_ref()) {
            let _ = to.write_all(b"+");
        }
    }

    /// Ends it. Whether it had to abort the mount.
    pub(crate) fn end(mut self) -> bool {
        self.close()
    }

    fn close(&mut self) -> bool {
        let Some(mut child) = self.0.take() else { return false };
        drop(child.stdin.take());
        child.wait().is_ok_and(|status| status.code() == Some(ABORTED))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if self.close() && !thread::panicking() {
            panic!("the mount stood still, and was aborted");
        }
    }
}

/// The number by which the kernel knows the server: the minor number of the device that is mounted.
fn connection_of(root: &Path) -> Result<u32, Failed> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let root = root.to_str().ok_or("a path that can be read")?;
    let of = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?;
        (fields.nth(1)? == root).then(|| device.split_once(':')?.1.parse().ok())?
    };
    // The last that is mounted there is on top.
    Ok(mounts.lines().filter_map(of).next_back().ok_or("nothing is mounted there")?)
}

/// What the process of the watchdog does; `arguments` are the connection, and limit and grace in milliseconds.
pub(crate) fn serve(arguments: &[String]) -> Result<i32, Failed> {
    let [connection, limit, grace] = arguments else { return Err("three arguments".into()) };
    let [limit, grace] = [limit.parse()?, grace.parse()?].map(Duration::from_millis);
    let watched = rustix::process::getppid().ok_or("who is watched has ended")?;
    let signs = signs();
    if !stands_still(&signs, limit) {
        return Ok(0);
    }
    let done = abort(connection);
    eprintln!("A mount stood still for {limit:?}, connection {connection}: abort it: {done:?}");
    if stands_still(&signs, grace) {
        eprintln!("The test does not end by that: its process is killed");
        // Its number is not another's as long as this is its child.
        if rustix::process::getppid() == Some(watched) && watched != Pid::INIT {
            kill_process(watched, Signal::KILL)?;
        }
    }
    Ok(ABORTED)
}

/// A sign for each byte of the input; the channel ends when that does.
fn signs() -> Receiver<()> {
    let (sender, signs) = channel();
    thread::spawn(move || {
        let mut byte = [0];
        while io::stdin().read_exact(&mut byte).is_ok() && sender.send(()).is_ok() {}
    });
    signs
}

/// Waits for the end of the input, or for `limit` to go by without a sign; whether it was the latter.
fn stands_still(signs: &Receiver<()>, limit: Duration) -> bool {
    loop {
        match signs.recv_timeout(limit) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Aborts a connection, also where the system has not mounted the list of them.
fn abort(connection: &str) -> io::Result<()> {
    let in_list = |list: &Path| fs::write(list.join(connection).join("abort"), "1");
    if in_list(Path::new(CONNECTIONS)).is_ok() {
        return Ok(());
    }
    let list = tempfile::tempdir()?;
    mount("none", list.path(), "fusectl", MountFlags::empty(), None)?;
    let done = in_list(list.path());
    unmount(list.path(), UnmountFlags::DETACH)?;
    done
}

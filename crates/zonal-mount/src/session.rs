//! A mount from its beginning to its end.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::{Config, MountOption, Session, SessionACL};
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Resource, getrlimit, setrlimit};
use zonal_cache::evict::Evict;
use zonal_cache::{Cache, NotDirect, Stats};

use crate::budget;
use crate::contents::Contents;
use crate::error::MountError;
use crate::file_system::FileSystem;
use crate::shared::Shared;

/// The smallest bound on memory, in bytes. All of it is for file data then, and the rest of the process comes beside it.
pub const LEAST_MEMORY: usize = 1 << 20;

/// For this much memory the data of one more file may be kept without a handle.
const FOR_FILE: usize = 64 << 10;

/// How old dirty pages become before they are written back.
const AGE: Duration = Duration::from_secs(5);

/// How a mount is to be.
///
/// ```
/// let options = zonal_mount::Options { memory: 64 << 20, ..Default::default() };
/// assert_eq!((options.threads, &*options.statistics), (4, ".zonal"));
/// ```
///
/// # Memory
/// All of a process that mounts, and does nothing else, takes no more than [`memory`](Options::memory) and 5 % of it, from 16
/// MiB on with 4 threads, from 68 MiB on with 64. File data get what is left of it: 53 of 64 MiB, 232 of 256 MiB. The rest
/// are 5 MiB for the program, requests on their way, which are as much smaller as there are more threads (a 32nd part of all,
/// or 256 KiB a thread), 192 KiB for each thread beside, and the tables, 4 to 6 bytes of 100. Where that is more than half,
/// half is for data and tables all the same, and data have 1 MiB at least. `bound_bytes` of the statistics is what data have.
///
/// The 5 % are for what grows with files: 2 KiB for each whose data are kept without a handle, of which there is one for
/// each 64 KiB of memory, at least 16, at most 4096. Not counted are the inodes that the kernel knows (300 bytes each) and
/// handles that are open (2 KiB), whose numbers others decide, and threads that wait for a directory below that hangs.
///
/// A program that mounts by this library, and not by the command, has to count its own memory too. The command also has glibc
/// map pieces of 4 MiB and more (`M_MMAP_THRESHOLD`): without, 64 threads took 160 MiB more, as fuser has a buffer of 16 MiB for
/// each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of memory for all of a process that mounts: the program, requests on their way, tables, file data.
    pub memory: usize,
    /// Threads that answer the kernel.
    pub threads: usize,
    /// The name of the statistics file, at the root. It is not listed.
    pub statistics: String,
    /// Whether the files below are read and written through the kernel's cache, which is then not bounded.
    pub buffered: bool,
}

impl Default for Options {
    /// 256 MiB, 4 threads, `.zonal`, past the kernel's cache.
    fn default() -> Self {
        Self { memory: 256 << 20, threads: 4, statistics: ".zonal".to_owned(), buffered: false }
    }
}

/// Whether this process may mount by FUSE, as far as the device says.
///
/// # Errors
/// [`MountError::NoFuse`].
pub fn can_mount() -> Result<(), MountError> {
    can_mount_by("/dev/fuse".as_ref())
}

fn can_mount_by(device: &Path) -> Result<(), MountError> {
    let device = File::options().read(true).write(true).open(device);
    device.map(drop).map_err(MountError::NoFuse)
}

/// A directory that is mounted. When this is dropped it is taken out of sight and written back;
/// [`wait`](Self::wait) says how that went.
///
/// **The process that serves a mount must not map its files.** While the kernel maps or unmaps such a file it
/// holds the lock of the process's address space, and waits for reads and writes of mapped pages. A server
/// thread that meanwhile touches new memory waits for that lock: both stand still for ever, and no signal ends
/// the process (ADR 76). Other processes may map what they like; `read` and `write` may come from anywhere.
pub struct Mounted<E: Evict> {
    shared: Arc<Shared<E>>,
    mountpoint: PathBuf,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl<E: Evict> Mounted<E> {
    /// Mounts `directory` on `mountpoint`, an empty directory. Its files are not to be changed by
    /// other ways meanwhile.
    ///
    /// # Errors
    /// [`MountError`] says what is in the way; nothing is mounted then.
    pub fn start(
        directory: &Path,
        mountpoint: &Path,
        options: &Options,
    ) -> Result<Self, MountError> {
        check_options(options)?;
        let directory = check_directory("directory", directory)?;
        let mountpoint = check_mountpoint(mountpoint, &directory)?;
        if directory.join(&options.statistics).symlink_metadata().is_ok() {
            return Err(statistics(options, "there is a file of that name"));
        }
        can_mount()?;
        let root =
            open(&directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let unreachable =
            |source| MountError::Unreachable { what: "directory", path: directory.clone(), source };
        let root = root.map_err(|error| unreachable(error.into()))?;
        let builder = Cache::<E>::builder().io_threads(2).write_behind(AGE);
        let cache = budget::share(builder, options).open()?;
        raise_file_limit();
        let contents = Contents::new(cache, idle_files(options), options.buffered);
        let shared = Shared::new(root, contents, options);
        let shared = Arc::new(shared.map_err(unreachable)?);
        let failed = |source| MountError::Mount { path: mountpoint.clone(), source };
        let file_system = FileSystem::new(shared.clone(), budget::request(options) as u32);
        let session = Session::new(file_system, &mountpoint, &config(options)).map_err(failed)?;
        let name = "mount".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || session.run());
        let thread = Some(thread.map_err(failed)?);
        Ok(Self { shared, mountpoint, thread })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Whether it has been unmounted.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What the cache has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.cache().stats()
    }

    /// Why a file below is read and written through the kernel's cache, whose memory is not bounded, if one is though
    /// [`Options::buffered`] did not ask for it: the first that was.
    #[must_use]
    pub fn not_direct(&self) -> Option<&NotDirect> {
        self.shared.contents.not_direct()
    }

    /// Unmounts it, if no process uses it.
    ///
    /// # Errors
    /// [`MountError::Unmount`]: it is as before.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.end(UnmountFlags::empty())
    }

    /// Takes it out of sight: it ends when the last process that uses it does.
    ///
    /// # Errors
    /// As [`unmount`](Self::unmount).
    pub fn detach(&self) -> Result<(), MountError> {
        self.end(UnmountFlags::DETACH)
    }

    fn end(&self, flags: UnmountFlags) -> Result<(), MountError> {
        if self.is_over() {
            return Ok(());
        }
        unmount(&self.mountpoint, flags).map_err(|error| MountError::Unmount {
            path: self.mountpoint.clone(),
            source: error.into(),
        })
    }

    /// Waits until it is unmounted, by whatever means, and writes back what is not yet written. A file whose store below hangs
    /// is waited for, and keeps no other from being written, up to 32 of them.
    ///
    /// # Errors
    /// [`MountError::NotWritten`] if some could not be, [`MountError::Session`] if the mount ended by an error.
    pub fn wait(mut self) -> Result<Stats, MountError> {
        let ended = self.thread.take().map(JoinHandle::join);
        self.shared.finish()?;
        match ended {
            Some(Ok(Err(error))) if !is_end(&error) => Err(MountError::Session(error)),
            Some(Err(_)) => Err(MountError::Session(io::Error::other("a thread panicked"))),
            _ => Ok(self.shared.cache().stats()),
        }
    }
}

impl<E: Evict> Drop for Mounted<E> {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.detach();
            let _ = self.shared.finish();
        }
    }
}

impl<E: Evict> fmt::Debug for Mounted<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounted").field("mountpoint", &self.mountpoint).finish_non_exhaustive()
    }
}

/// Whether that is how the kernel says that the mount has ended. A read that finds no request then fails with
/// `ENODEV`, which the session knows; one that had already taken a request (the release of a file that was
/// closed just before) fails with `ECONNABORTED`, and nothing waits for the answer.
fn is_end(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionAborted
}

fn config(options: &Options) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("zonal".to_owned()),
        MountOption::Subtype("zonal".to_owned()),
        // The kernel asks the attributes who may do what.
        MountOption::DefaultPermissions,
    ];
    config.acl = SessionACL::All;
    config.n_threads = Some(options.threads.max(1));
    config
}

/// Each inode that the kernel knows has a descriptor: as many as may be.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Else it stays as it is, and lookups beyond it fail.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Files whose data are kept without a handle. Each has two descriptors; as many are left for inodes. And each has memory
/// that is of no page, some 2 KiB: that is 3 % of all at most.
fn idle_files(options: &Options) -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    ((most / 8) as usize).min(options.memory / FOR_FILE).clamp(16, 4096)
}

fn statistics(options: &Options, why: &'static str) -> MountError {
    MountError::Statistics { name: options.statistics.clone(), why }
}

fn check_options(options: &Options) -> Result<(), MountError> {
    if options.memory < LEAST_MEMORY {
        return Err(MountError::BoundTooSmall { asked: options.memory, least: LEAST_MEMORY });
    }
    let name = &*options.statistics;
    let is_name = !name.contains(['/', '\0']) && !matches!(name, "" | "." | "..");
    if !is_name || name.len() > 255 {
        return Err(statistics(options, "that is no file name"));
    }
    Ok(())
}

fn check_directory(what: &'static str, path: &Path) -> Result<PathBuf, MountError> {
    let unreachable = |source| MountError::Unreachable { what, path: path.to_owned(), source };
    if !fs::metadata(path).map_err(unreachable)?.is_dir() {
        return Err(MountError::NoDirectory { what, path: path.to_owned() });
    }
    path.canonicalize().map_err(unreachable)
}

fn check_mountpoint(path: &Path, directory: &Path) -> Result<PathBuf, MountError> {
    let own = || path.to_owned();
    if let Err(error) = fs::metadata(path)
        && error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error())
    {
        return Err(MountError::Dead { path: own() });
    }
    let mountpoint = check_directory("mountpoint", path)?;
    let unreachable = |source| MountError::Unreachable { what: "mountpoint", path: own(), source };
    if fs::read_dir(&mountpoint).map_err(unreachable)?.next().is_some() {
        return Err(MountError::NotEmpty { path: own() });
    }
    if mountpoint.starts_with(directory) {
        return Err(MountError::Inside { mountpoint, directory: directory.to_owned() });
    }
    Ok(mountpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_cli::error::Failure;

    #[test]
    fn without_a_device_nothing_is_mounted() {
        let error = can_mount_by("/proc/self/no such device".as_ref()).unwrap_err();
        assert!(matches!(error, MountError::NoFuse(_)), "{error:?}");
        let message = "cannot open /dev/fuse: No such file or directory (os error 2)";
        assert_eq!((error.to_string().as_str(), error.exit_code()), (message, 1));
    }
}

//! Files that results go to.
//!
//! Whether a file can be written is found out before the run, and not after minutes of simulating;
//! it comes to be, or changes, when there is something to write, and all at once: a run that fails
//! or is interrupted leaves what was there. A file that [grows](OutFile::extend) is at any time what it
//! was before, or all that was written to it so far.
//!
//! ```
//! use zonal_cli::outfile::OutFile;
//!
//! let path = std::env::temp_dir().join(format!("zonal-outfile-{}", std::process::id()));
//! let file = OutFile::open(&path)?;
//! assert!(!path.exists());
//! file.replace(b"first")?;
//! OutFile::open(&path)?.replace(b"2nd")?;
//! assert_eq!(std::fs::read(&path)?, b"2nd");
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf, is_separator};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::LabError;

/// A file that can be written, not yet changed.
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    place: Place,
    /// What was written to it, if another file takes its name each time it grows.
    content: Vec<u8>,
    started: bool,
}

/// How its content gets there.
#[derive(Debug)]
enum Place {
    /// A file beside it takes this name, which no symbolic link has.
    Renamed(PathBuf),
    /// It is written itself: what is no regular file, or in a directory that takes no other.
    Itself(File),
}

impl OutFile {
    /// Looks whether `path` can be written, and leaves it as it is.
    ///
    /// # Errors
    ///
    /// [`LabError::Unwritable`].
    pub fn open(path: &Path) -> Result<Self, LabError> {
        match place(path) {
            Ok(place) => Ok(Self { path: path.into(), place, content: Vec::new(), started: false }),
            Err(source) => Err(LabError::Unwritable { path: path.into(), source }),
        }
    }

    /// Whether both are one file, of which the second to be written would replace the first.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (Place::Renamed(own), Place::Renamed(other)) => own == other,
            // A device takes one after the other.
            _ => false,
        }
    }

    /// Replaces what is in it.
    ///
    /// # Errors
    ///
    /// [`LabError::Unwritable`].
    pub fn replace(mut self, content: &[u8]) -> Result<(), LabError> {
        self.extend(content)
    }

    /// Replaces what is in it the first time, and adds to that from then on. Keeps what was written
    /// in memory, and writes all of it again: for results, which are few.
    ///
    /// # Errors
    ///
    /// [`LabError::Unwritable`].
    pub fn extend(&mut self, more: &[u8]) -> Result<(), LabError> {
        let written = match &mut self.place {
            Place::Renamed(target) => {
                self.content.extend_from_slice(more);
                rename_over(target, &self.content)
            }
            Place::Itself(file) => write_itself(file, more, !self.started),
        };
        self.started = true;
        written.map_err(|source| LabError::Unwritable { path: self.path.clone(), source })
    }
}

/// Looks whether files can be created in a directory.
///
/// # Errors
///
/// [`LabError::Unwritable`].
pub fn probe(directory: &Path) -> Result<(), LabError> {
    let probed = sibling(directory).and_then(|(path, _)| fs::remove_file(path));
    probed.map_err(|source| LabError::Unwritable { path: directory.into(), source })
}

fn place(path: &Path) -> io::Result<Place> {
    let exists = match fs::metadata(path) {
        Ok(metadata) => Some(metadata.is_file()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let itself = || OpenOptions::new().write(true).open(path).map(Place::Itself);
    // What a name in /dev leads to may be open already, as standard output is.
    if exists == Some(false) || exists.is_some() && path.starts_with("/dev") {
        return itself();
    }
    let target = target(path, exists.is_some())?;
    let directory = target.parent().unwrap_or(Path::new("/"));
    match sibling(directory) {
        Ok((probe, _)) => fs::remove_file(probe)?,
        Err(_) if exists.is_some() => return itself(),
        Err(error) => return Err(error),
    }
    if exists.is_some() {
        // A user who may not write to it is not to replace it either.
        itself()?;
    }
    Ok(Place::Renamed(target))
}

/// The file that a path leads to, in a directory that exists.
fn target(path: &Path, exists: bool) -> io::Result<PathBuf> {
    if exists {
        return fs::canonicalize(path);
    }
    // A link may lead to what is not there yet.
    let led = fs::read_link(path).map(|to| path.with_file_name(to));
    let path = led.as_deref().unwrap_or(path);
    let ends_as_directory = path.to_string_lossy().ends_with(is_separator);
    let Some(name) = path.file_name().filter(|_| !ends_as_directory) else {
        return Err(ErrorKind::InvalidFilename.into());
    };
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    Ok(fs::canonicalize(directory)?.join(name))
}

/// A new file in a directory, under a name that no file has.
fn sibling(directory: &Path) -> io::Result<(PathBuf, File)> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".zonal-{}-{number}.tmp", process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => (),
            file => return file.map(|file| (path, file)),
        }
    }
}

fn rename_over(target: &Path, content: &[u8]) -> io::Result<()> {
    let (path, mut file) = sibling(target.parent().unwrap_or(Path::new("/")))?;
    let write = || {
        if let Ok(old) = fs::metadata(target) {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(content)?;
        drop(file);
        fs::rename(&path, target)
    };
    write().inspect_err(|_| {
        // What is said is why it could not be written.
        let _ = fs::remove_file(&path);
    })
}

fn write_itself(file: &mut File, content: &[u8], empty: bool) -> io::Result<()> {
    // Devices and pipes have no length.
    if empty && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(content)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("it is there");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn nothing_is_there_before_it_is_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("new");
        let file = OutFile::open(&path).expect("it can be written");
        assert!(names(directory.path()).is_empty());
        file.replace(b"content").expect("it can be written");
        assert_eq!(names(directory.path()), ["new"]);
        probe(directory.path()).expect("it takes files");
        assert_eq!(names(directory.path()), ["new"]);
    }

    #[test]
    fn a_file_grows_from_nothing_or_from_what_replaces_the_old() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("rows");
        fs::write(&path, "old content").expect("it can be written");
        let mut file = OutFile::open(&path).expect("it can be written");
        let read = || fs::read_to_string(&path).expect("it is there");
        assert_eq!(read(), "old content");
        file.extend(b"one\n").expect("it can be written");
        assert_eq!(read(), "one\n");
        file.extend(b"two\n").expect("it can be written");
        assert_eq!(read(), "one\ntwo\n");
        assert_eq!(names(directory.path()), ["rows"]);
    }

    #[test]
    fn what_cannot_be_written_is_said_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let within = |name: &str| directory.path().join(name);
        let (long, missing) = ("n".repeat(300), PathBuf::from("/nonexistent/file"));
        for path in [PathBuf::new(), within(""), within("new/"), within(&long), missing] {
            let error = OutFile::open(&path).expect_err("it is no name of a file");
            assert!(matches!(error, LabError::Unwritable { .. }), "{path:?}: {error}");
        }
        assert!(names(directory.path()).is_empty());
        assert!(probe(&within("nowhere")).is_err());
    }

    #[test]
    fn names_of_one_file_are_known_as_such() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = |name: &str| OutFile::open(&directory.path().join(name)).expect("writable");
        assert!(open("a").is_same(&open("./a")));
        assert!(!open("a").is_same(&open("b")));
        open("a").replace(b"there").expect("writable");
        assert!(open("a").is_same(&open("./a")));
        let null = || OutFile::open(Path::new("/dev/null")).expect("writable");
        assert!(!cfg!(unix) || !null().is_same(&null()));
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let directory = tempfile::tempdir().expect("a directory");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        symlink("file", &link).expect("a link");
        let write = |content: &[u8]| {
            let opened = OutFile::open(&link).expect("it can be written");
            opened.replace(content).expect("it can be written");
            assert!(link.is_symlink());
            assert_eq!(fs::read(&file).expect("it is there"), content);
        };
        write(b"where the link leads to nothing");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
        write(b"and where it leads to a file");
        let mode = fs::metadata(&file).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }
}

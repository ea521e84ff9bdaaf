//! The file that a workload runs on: one that is there, a block device, or one that is made for the run
//! and removed again.
//!
//! ```
//! use zonal_iosched::target_file::TargetFile;
//!
//! let path = std::env::temp_dir().join(format!("zonal-iosched-{}", std::process::id()));
//! let file = TargetFile::open(&path, 1 << 20, true, false, false)?;
//! assert_eq!(file.bytes(), 1 << 20);
//! drop(file);
//! assert!(!path.exists(), "it was made for the run");
//! # Ok::<(), zonal_iosched::error::IoschedError>(())
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::IoschedError;

/// A file to read and write.
#[derive(Debug)]
pub struct TargetFile {
    file: File,
    bytes: u64,
    /// Whether the kernel's page cache is gone around.
    direct: bool,
    rotational: bool,
    /// Made for the run.
    _made: Option<Made>,
}

/// Removes a file when the run is over.
#[derive(Debug)]
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        // What cannot be removed is left: there is nothing else to be done about it.
        let _ = fs::remove_file(&self.0);
    }
}

impl TargetFile {
    /// Opens a file, or makes one of `size` bytes where there is none. Around the kernel's page cache, if the
    /// file system lets it, unless `buffered`.
    ///
    /// # Errors
    ///
    /// [`IoschedError::WouldOverwrite`] if it `writes` to a file that is there without `overwrite`,
    /// [`IoschedError::File`].
    pub fn open(
        path: &Path,
        size: u64,
        writes: bool,
        overwrite: bool,
        buffered: bool,
    ) -> Result<Self, IoschedError> {
        let failed = |what| move |source| IoschedError::File { what, path: path.into(), source };
        let made = if path.exists() {
            if writes && !overwrite {
                return Err(IoschedError::WouldOverwrite { path: path.into() });
            }
            None
        } else {
            let new = OpenOptions::new().write(true).create_new(true).open(path);
            let file = new.map_err(failed("make"))?;
            // Only what was made is removed: a link to nowhere is not.
            let made = Made(path.into());
            fill(file, size).map_err(failed("make"))?;
            Some(made)
        };
        let open =
            |flags| OpenOptions::new().read(true).write(writes).custom_flags(flags).open(path);
        let direct = if buffered { None } else { open(libc::O_DIRECT).ok().filter(reads_direct) };
        let is_direct = direct.is_some();
        let mut file = match direct {
            Some(file) => file,
            None => open(0).map_err(failed("open"))?,
        };
        let data = file.metadata().map_err(failed("look at"))?;
        let is_device = data.file_type().is_block_device();
        if !is_device && !data.is_file() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "no file and no block device");
            return Err(failed("use")(source));
        }
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed("look at"))? / 4096 * 4096;
        let device = if is_device { data.rdev() } else { data.dev() };
        let rotational = is_rotational(device).unwrap_or(true);
        Ok(Self { file, bytes, direct: is_direct, rotational, _made: made })
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Its length in whole pages.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the kernel's page cache is gone around.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether the system says that the device turns; yes where it does not say.
    #[must_use]
    pub const fn is_rotational(&self) -> bool {
        self.rotational
    }
}

/// Whether a file opened to go around the kernel's page cache can be read so.
fn reads_direct(file: &File) -> bool {
    use std::os::unix::fs::FileExt;
    let mut buffer = Buffer::new(4096);
    file.read_at(buffer.bytes(4096), 0).is_ok()
}

/// Fills a file, without holes and zeroes.
fn fill(mut file: File, size: u64) -> io::Result<()> {
    let mut piece = vec![0u8; 1 << 20];
    fastrand::Rng::with_seed(1).fill(&mut piece);
    let mut left = size;
    while left > 0 {
        let now = left.min(piece.len() as u64);
        file.write_all(&piece[..now as usize])?;
        left -= now;
    }
    file.sync_all()
}

/// What the system says of a device, or of the device that it is a part of.
fn is_rotational(device: u64) -> Option<bool> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let place = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let files = [place.join("queue/rotational"), place.join("../queue/rotational")];
    let text = files.iter().find_map(|file| fs::read_to_string(file).ok())?;
    Some(text.trim() != "0")
}

/// Memory that begins on a page, as going around the kernel's page cache needs it.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// Room for `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let memory = vec![0xa5; bytes + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Self { memory, start }
    }

    /// The first of its bytes.
    ///
    /// # Panics
    ///
    /// If there is not so much room.
    pub fn bytes(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.start..self.start + bytes]
    }
}

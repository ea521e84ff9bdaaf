//! Files that results go to.
//!
//! A file is opened before the run, so that a name that cannot be written is not found out after
//! minutes of simulating; what was in it is replaced only when there is something to write.
//!
//! ```
//! use zonal_lab::outfile::OutFile;
//!
//! let path = std::env::temp_dir().join(format!("zonal-outfile-{}", std::process::id()));
//! OutFile::open(&path)?.replace(b"first")?;
//! OutFile::open(&path)?.replace(b"2nd")?;
//! assert_eq!(std::fs::read(&path)?, b"2nd");
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::LabError;

/// A file that can be written, not yet changed.
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    file: File,
}

impl OutFile {
    /// Opens `path`, creating the file if there is none.
    ///
    /// # Errors
    ///
    /// [`LabError::Unwritable`].
    pub fn open(path: &Path) -> Result<Self, LabError> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|source| LabError::Unwritable { path: path.into(), source })?;
        Ok(Self { path: path.into(), file })
    }

    /// Replaces what is in it.
    ///
    /// # Errors
    ///
    /// [`LabError::Unwritable`].
    pub fn replace(mut self, content: &[u8]) -> Result<(), LabError> {
        self.write(content).map_err(|source| LabError::Unwritable { path: self.path, source })
    }

    fn write(&mut self, content: &[u8]) -> io::Result<()> {
        // Devices and pipes have no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(content)?;
        self.file.flush()
    }
}

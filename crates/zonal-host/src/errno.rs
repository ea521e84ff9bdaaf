//! The kernel's error numbers, with their text.
//!
//! ```
//! use zonal_host::errno::Errno;
//! assert_eq!(Errno::NO_MEMORY.to_string(), "Cannot allocate memory (os error 12)");
//! ```

use std::fmt;

/// An error number of a system call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(i32);

impl Errno {
    /// `ENOMEM`.
    pub const NO_MEMORY: Self = Self(libc::ENOMEM);
    /// `EINVAL`.
    pub const INVALID: Self = Self(libc::EINVAL);
    /// `EEXIST`.
    pub const EXISTS: Self = Self(libc::EEXIST);

    /// What the last call that failed in this thread left behind.
    #[must_use]
    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// `Ok` for a return value of 0, else the error it left behind.
    pub(crate) fn check(returned: i64) -> Result<(), Self> {
        if returned == 0 { Ok(()) } else { Err(Self::last()) }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl From<i32> for Errno {
    /// The error with this number, as Linux counts them.
    fn from(number: i32) -> Self {
        Self(number)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

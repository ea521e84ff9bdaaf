//! What an allocator's host needs of ACPI, without a heap: the processors (MADT), the nodes of processors
//! and of memory (SRAT), and how far the nodes are apart (SLIT).
//!
//! [`find`] goes from the root pointer (RSDP) to a table; [`Madt`], [`Srat`] and [`Slit`] read one from
//! its bytes, and nothing else. Every length that firmware wrote is checked before it is followed.
//!
//! ```
//! use zonal_kernel::acpi::{AcpiError, Srat};
//! assert_eq!(Srat::new(b"SRAT").err(), Some(AcpiError::TooShort { bytes: 4 }));
//! ```

mod find;
mod madt;
mod slit;
mod srat;

pub use find::find;
pub use madt::Madt;
pub use slit::Slit;
pub use srat::{CpuNode, Srat};

use core::fmt;

/// Bytes of the head that every table has.
const HEAD: usize = 36;

/// What is wrong with a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AcpiError {
    /// Fewer bytes than a table has, or than it says that it has.
    TooShort {
        /// Bytes given.
        bytes: usize,
    },
    /// Another table, or none.
    Signature {
        /// What is there.
        found: [u8; 4],
        /// What was looked for.
        wanted: [u8; 4],
    },
    /// Its bytes do not add up to 0.
    Checksum {
        /// The table.
        table: [u8; 4],
    },
    /// The root pointer is not one.
    NoRoot,
    /// The root table does not name such a table.
    NotFound {
        /// The table.
        table: [u8; 4],
    },
}

/// A signature as text.
struct Name([u8; 4]);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| byte.escape_ascii().fmt(f))
    }
}

impl fmt::Display for AcpiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooShort { bytes } => write!(f, "an ACPI table does not fit into {bytes} bytes"),
            Self::Signature { found, wanted } => {
                write!(f, "an ACPI table is `{}`, not `{}`", Name(found), Name(wanted))
            }
            Self::Checksum { table } => {
                write!(f, "the bytes of the ACPI table `{}` do not add up to 0", Name(table))
            }
            Self::NoRoot => f.write_str("there is no ACPI root pointer"),
            Self::NotFound { table } => write!(f, "there is no ACPI table `{}`", Name(table)),
        }
    }
}

impl core::error::Error for AcpiError {}

/// The bytes of a table after checks: as long as its head says.
fn checked(bytes: &[u8], wanted: [u8; 4]) -> Result<&[u8], AcpiError> {
    let too_short = AcpiError::TooShort { bytes: bytes.len() };
    let length = number(named(bytes, wanted)?, 4, 4) as usize;
    if length < HEAD {
        return Err(too_short);
    }
    let table = bytes.get(..length).ok_or(too_short)?;
    if sum(table) != 0 {
        return Err(AcpiError::Checksum { table: wanted });
    }
    Ok(table)
}

/// The head of a table after a look at its name.
fn named(bytes: &[u8], wanted: [u8; 4]) -> Result<&[u8], AcpiError> {
    let head = bytes.get(..HEAD).ok_or(AcpiError::TooShort { bytes: bytes.len() })?;
    let found = [head[0], head[1], head[2], head[3]];
    if found == wanted { Ok(head) } else { Err(AcpiError::Signature { found, wanted }) }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum: u8, &byte| sum.wrapping_add(byte))
}

/// The little-endian number of `bytes` bytes at `at`; what is beyond the end is 0.
fn number(table: &[u8], at: usize, bytes: usize) -> u64 {
    let own = table.get(at..).unwrap_or_default().iter().take(bytes);
    own.rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The entries of a table that begin with a kind and a length, from `at` on. Ends at an entry that is
/// shorter than that or reaches beyond the table.
fn entries(table: &[u8], at: usize) -> impl Iterator<Item = (u8, &[u8])> + Clone {
    let mut rest = table.get(at..).unwrap_or_default();
    core::iter::from_fn(move || {
        let &[kind, length @ 2..=u8::MAX, ..] = rest else { return None };
        let (entry, after) = rest.split_at_checked(usize::from(length))?;
        rest = after;
        Some((kind, entry))
    })
}

//! From the root pointer to a table.

use super::{AcpiError, HEAD, checked, named, number, sum};
use crate::Machine;
use zonal::map::PhysAddr;

/// Bytes of the root pointer: of its first version, and of the second.
const ROOT: (usize, usize) = (20, 36);

/// A table that says it is longer is damaged.
const MOST_BYTES: usize = 1 << 20;

/// The bytes of the table with this signature, found by the root pointer at `root`. Addresses that are 0 lead to no table:
/// where the second version's is, the first one's is taken, and entries of the root table are passed over.
///
/// # Safety
/// If there is a root pointer at `root`, it and the tables that it leads to can be read where
/// `M::address` says, in a row, and are not written as long as what is returned is in use.
///
/// # Errors
/// [`AcpiError`]: there is no root pointer, the root table is missing or damaged, it has no such table, or one that says
/// it has more than 1 MiB ([`TooShort`](AcpiError::TooShort)). The table itself is checked by who reads it.
pub unsafe fn find<M: Machine>(root: PhysAddr, table: [u8; 4]) -> Result<&'static [u8], AcpiError> {
    // SAFETY: the caller's promise, for this and all addresses that the tables name.
    let bytes = |at: u64, bytes: usize| unsafe { read::<M>(at, bytes) };
    let (first, second) = ROOT;
    let pointer = bytes(root.0, first);
    if &pointer[..8] != b"RSD PTR " || sum(pointer) != 0 {
        return Err(AcpiError::NoRoot);
    }
    // The second version has 64-bit addresses in an extended table, or none of it.
    let extended = match pointer[15] {
        0 | 1 => 0,
        _ => number(bytes(root.0, second), 24, 8),
    };
    let (at, width, signature) = match extended {
        0 => (number(pointer, 16, 4), 4, *b"RSDT"),
        at => (at, 8, *b"XSDT"),
    };
    if at == 0 {
        return Err(AcpiError::NotFound { table: signature });
    }
    let head = named(bytes(at, HEAD), signature)?;
    let tables = checked(bytes(at, length(head)?.max(HEAD)), signature)?;
    let entries = tables[HEAD..].chunks_exact(width).map(|entry| number(entry, 0, width));
    for at in entries.filter(|&at| at != 0) {
        let head = bytes(at, HEAD);
        if head[..4] == table {
            return Ok(bytes(at, length(head)?));
        }
    }
    Err(AcpiError::NotFound { table })
}

/// The length in the head of a table, if it may be followed.
fn length(head: &[u8]) -> Result<usize, AcpiError> {
    let length = number(head, 4, 4) as usize;
    if length <= MOST_BYTES { Ok(length) } else { Err(AcpiError::TooShort { bytes: MOST_BYTES }) }
}

/// # Safety
/// These bytes can be read where `M::address` says, and are not written for good.
unsafe fn read<M: Machine>(at: u64, bytes: usize) -> &'static [u8] {
    // SAFETY: the caller's promise; bytes have no alignment.
    unsafe { core::slice::from_raw_parts(M::address(PhysAddr(at)), bytes) }
}

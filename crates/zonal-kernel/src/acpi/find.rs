//! From the root pointer to a table.

use super::{AcpiError, HEAD, number, sum};
use crate::Machine;
use zonal::map::PhysAddr;

/// Bytes of the root pointer: of its first version, and of the second.
const ROOT: (usize, usize) = (20, 36);

/// The bytes of the table with this signature, found by the root pointer at `root`.
///
/// # Safety
/// If there is a root pointer at `root`, it and the tables that it leads to can be read where
/// `M::address` says, in a row, and are not written as long as what is returned is in use.
///
/// # Errors
/// [`AcpiError`]: there is no root pointer, the root table is damaged, or it has no such table. The table
/// itself is checked by who reads it.
pub unsafe fn find<M: Machine>(root: PhysAddr, table: [u8; 4]) -> Result<&'static [u8], AcpiError> {
    // SAFETY: the caller's promise, for this and all addresses that the tables name.
    let bytes = |at: u64, bytes: usize| unsafe { read::<M>(at, bytes) };
    let (first, second) = ROOT;
    let pointer = bytes(root.0, first);
    if &pointer[..8] != b"RSD PTR " || sum(pointer) != 0 {
        return Err(AcpiError::NoRoot);
    }
    // The second version has 64-bit addresses in an extended table.
    let (at, width, signature) = match pointer[15] {
        0 | 1 => (number(pointer, 16, 4), 4, *b"RSDT"),
        _ => (number(bytes(root.0, second), 24, 8), 8, *b"XSDT"),
    };
    let length = number(bytes(at, HEAD), 4, 4) as usize;
    let tables = super::checked(bytes(at, length.max(HEAD)), signature)?;
    for entry in tables[HEAD..].chunks_exact(width) {
        let at = number(entry, 0, width);
        let head = bytes(at, HEAD);
        if head[..4] == table {
            return Ok(bytes(at, number(head, 4, 4) as usize));
        }
    }
    Err(AcpiError::NotFound { table })
}

/// # Safety
/// These bytes can be read where `M::address` says, and are not written for good.
unsafe fn read<M: Machine>(at: u64, bytes: usize) -> &'static [u8] {
    // SAFETY: the caller's promise; bytes have no alignment.
    unsafe { core::slice::from_raw_parts(M::address(PhysAddr(at)), bytes) }
}

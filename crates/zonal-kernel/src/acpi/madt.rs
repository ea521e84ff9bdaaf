//! Which processors there are.

use super::{AcpiError, checked, entries, number};

/// The table of interrupt controllers, signature `APIC`.
///
/// ```
/// use zonal_kernel::acpi::Madt;
/// # let mut table = [&b"APIC"[..], &52_u32.to_le_bytes(), &[0; 28], &0xfee0_0000_u32.to_le_bytes()].concat();
/// # table.extend([0, 0, 0, 0, 0, 8, 0, 3, 1, 0, 0, 0]);
/// # table.resize(52, 0);
/// # table[9] = table.iter().fold(0, |sum: u8, &byte| sum.wrapping_sub(byte));
/// let madt = Madt::new(&table)?;
/// assert_eq!(madt.local_apic(), 0xfee0_0000);
/// assert_eq!(madt.apic_ids().collect::<Vec<_>>(), [3]);
/// # Ok::<(), zonal_kernel::acpi::AcpiError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Madt<'a>(&'a [u8]);

/// The processor may be used.
const ENABLED: u64 = 1;

impl<'a> Madt<'a> {
    /// The table at the start of `bytes`.
    ///
    /// # Errors
    /// [`AcpiError`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        checked(bytes, *b"APIC").map(Self)
    }

    /// Where each processor sees its own interrupt controller: the address in the head, unless an entry
    /// overrides it.
    #[must_use]
    pub fn local_apic(&self) -> u64 {
        let address = |(kind, entry): (u8, &[u8])| {
            (kind == 5 && entry.len() >= 12).then(|| number(entry, 4, 8))
        };
        entries(self.0, 44).find_map(address).unwrap_or_else(|| number(self.0, 36, 4))
    }

    /// The local APIC ids of the processors that may be used, in the order of the table. That is not
    /// always the order of their numbers, and the first need not be the one that boots.
    pub fn apic_ids(&self) -> impl Iterator<Item = u32> + Clone + use<'a> {
        entries(self.0, 44).filter_map(|(kind, entry)| {
            let (id, flags) = match kind {
                0 => (number(entry, 3, 1), number(entry, 4, 4)),
                9 => (number(entry, 4, 4), number(entry, 8, 4)),
                _ => return None,
            };
            (flags & ENABLED != 0).then_some(id as u32)
        })
    }
}

//! Which node processors and memory are on.

use super::{AcpiError, checked, entries, number};
use crate::boot_map::NodeRange;
use zonal::NodeId;

/// The table of affinities, signature `SRAT`. Its proximity domains are nodes; those beyond 255 are taken for
/// 255, which a map refuses.
///
/// ```
/// use zonal_kernel::acpi::Srat;
/// # let mut table = [&b"SRAT"[..], &88_u32.to_le_bytes(), &[0; 40]].concat();
/// # table.extend([1, 40, 1, 0, 0, 0, 0, 0]);
/// # table.extend([0x4000_0000_u64, 0x4000_0000, 1 << 32].map(u64::to_le_bytes).as_flattened());
/// # table.resize(88, 0);
/// # table[9] = table.iter().fold(0, |sum: u8, &byte| sum.wrapping_sub(byte));
/// let srat = Srat::new(&table)?;
/// let range = srat.memory().next().unwrap();
/// assert_eq!((range.bytes, range.node.0), (1 << 30..2 << 30, 1));
/// # Ok::<(), zonal_kernel::acpi::AcpiError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Srat<'a>(&'a [u8]);

/// A processor and its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuNode {
    /// Its local APIC id.
    pub apic_id: u32,
    /// Its node.
    pub node: NodeId,
}

/// The entry is in use.
const ENABLED: u64 = 1;

fn node(domain: u64) -> NodeId {
    NodeId(domain.min(255) as u8)
}

impl<'a> Srat<'a> {
    /// The table at the start of `bytes`.
    ///
    /// # Errors
    /// [`AcpiError`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        checked(bytes, *b"SRAT").map(Self)
    }

    /// The bits of a domain that are set by who wrote the table. The first revision has 8; what follows them is reserved.
    fn domain_mask(&self) -> u64 {
        if number(self.0, 8, 1) < 2 { 0xff } else { u64::MAX }
    }

    /// The memory of each node, also where there is none yet but may come.
    pub fn memory(&self) -> impl Iterator<Item = NodeRange> + Clone + use<'a> {
        let mask = self.domain_mask();
        entries(self.0, 48).filter(|(kind, _)| *kind == 1).filter_map(move |(_, entry)| {
            let (start, bytes) = (number(entry, 8, 8), number(entry, 16, 8));
            let in_use = number(entry, 28, 4) & ENABLED != 0;
            let range = start..start.checked_add(bytes)?;
            (in_use && bytes > 0)
                .then(|| NodeRange { bytes: range, node: node(number(entry, 2, 4) & mask) })
        })
    }

    /// The node of each processor.
    pub fn cpus(&self) -> impl Iterator<Item = CpuNode> + Clone + use<'a> {
        let mask = self.domain_mask();
        entries(self.0, 48).filter_map(move |(kind, entry)| {
            let (id, domain, flags) = match kind {
                0 => {
                    let domain = number(entry, 2, 1) | number(entry, 9, 3) << 8;
                    (number(entry, 3, 1), domain & mask, number(entry, 4, 4))
                }
                2 => (number(entry, 8, 4), number(entry, 4, 4), number(entry, 12, 4)),
                _ => return None,
            };
            let found = CpuNode { apic_id: id as u32, node: node(domain) };
            (flags & ENABLED != 0).then_some(found)
        })
    }
}

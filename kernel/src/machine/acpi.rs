//! Processors and nodes, from ACPI's tables.

use super::{Pc, apic, cpu};
use zonal::NodeId;
use zonal::map::PhysAddr;
use zonal::zonelist::DistanceMatrix;
use zonal_kernel::Error;
use zonal_kernel::acpi::{AcpiError, Madt, Slit, Srat, find};

/// What the tables say of nodes; nothing where there are none.
pub(crate) struct Nodes {
    pub(crate) srat: Option<Srat<'static>>,
    pub(crate) distances: DistanceMatrix,
}

/// A table, or `None` where there is no such table.
fn table(rsdp: PhysAddr, name: [u8; 4]) -> Result<Option<&'static [u8]>, Error> {
    // SAFETY: the boot loader found the root pointer; the firmware's tables lie in memory that its map
    // does not call usable, or below 1 MiB, and are mapped as all memory is.
    match unsafe { find::<Pc>(rsdp, name) } {
        Ok(bytes) => Ok(Some(bytes)),
        Err(AcpiError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads which nodes there are, and gives every processor its number and node: 0 is this one, the others
/// follow in the order of the table.
///
/// # Errors
/// A table that is damaged.
pub(crate) fn read(rsdp: PhysAddr) -> Result<Nodes, Error> {
    let srat = table(rsdp, *b"SRAT")?.map(Srat::new).transpose()?;
    let slit = table(rsdp, *b"SLIT")?.map(Slit::new).transpose()?;
    let distances = slit.map(|slit| slit.distances()).transpose()?.unwrap_or_default();
    let node_of = |apic_id| {
        let own = srat.and_then(|srat| srat.cpus().find(|cpu| cpu.apic_id == apic_id));
        own.map_or(NodeId(0), |cpu| cpu.node)
    };
    let this = apic::id();
    cpu::name(0, this, node_of(this));
    if let Some(madt) = table(rsdp, *b"APIC")? {
        let madt = Madt::new(madt)?;
        apic::set_base(madt.local_apic());
        let others = madt.apic_ids().filter(|&id| id != this).take(cpu::MOST - 1);
        for (number, id) in (1..).zip(others) {
            cpu::name(number, id, node_of(id));
        }
    }
    Ok(Nodes { srat, distances })
}

//! How far nodes are apart.

use super::{AcpiError, HEAD, checked, number};
use zonal::zonelist::{DistanceError, DistanceMatrix};

/// The table of distances, signature `SLIT`.
///
/// ```
/// use zonal::NodeId;
/// use zonal_kernel::acpi::Slit;
/// # let mut table = [&b"SLIT"[..], &48_u32.to_le_bytes(), &[0; 28], &2_u64.to_le_bytes()].concat();
/// # table.extend([10, 21, 21, 10]);
/// # table[9] = table.iter().fold(0, |sum: u8, &byte| sum.wrapping_sub(byte));
/// let distances = Slit::new(&table)?.distances()?;
/// assert_eq!(distances.get(NodeId(0), NodeId(1)), 21);
/// # Ok::<(), zonal_kernel::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Slit<'a>(&'a [u8]);

impl<'a> Slit<'a> {
    /// The table at the start of `bytes`.
    ///
    /// # Errors
    /// [`AcpiError`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        checked(bytes, *b"SLIT").map(Self)
    }

    /// As [`Config::distances`](zonal::plan::Config::distances) has it.
    ///
    /// # Errors
    /// [`DistanceError`]: more nodes than there may be, a table of another size, impossible distances.
    pub fn distances(&self) -> Result<DistanceMatrix, DistanceError> {
        let nodes = number(self.0, HEAD, 8).min(1 << 16) as usize;
        let table = self.0.get(HEAD + 8..).unwrap_or_default();
        DistanceMatrix::from_table(nodes, table.get(..nodes * nodes).unwrap_or(table))
    }
}

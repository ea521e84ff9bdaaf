//! Zone types: which devices and uses can reach which frames.
//!
//! ```
//! use zonal::zone_type::ZoneType;
//! assert_eq!(ZoneType::default().name(), "Normal");
//! assert!(ZoneType::Dma < ZoneType::Movable);
//! ```

/// How many zone types there are.
pub const NR_ZONE_TYPES: usize = 4;

/// What a zone is for. Ordered from the scarcest memory to the most plentiful: a request
/// limited to a type may use that type and every lower one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum ZoneType {
    /// Below the limit of the oldest devices: 16 MiB unless configured otherwise.
    Dma = 0,
    /// Below the limit of 32-bit devices: 4 GiB unless configured otherwise.
    Dma32 = 1,
    /// Everything above.
    #[default]
    Normal = 2,
    /// Memory from the top of a node that only movable requests may use.
    Movable = 3,
}

impl ZoneType {
    /// All of them, lowest first.
    pub const ALL: [Self; NR_ZONE_TYPES] = [Self::Dma, Self::Dma32, Self::Normal, Self::Movable];

    /// The type with this number; `None` for a number that is none.
    #[must_use]
    #[inline]
    pub const fn from_number(n: u8) -> Option<Self> {
        if (n as usize) < NR_ZONE_TYPES { Some(Self::ALL[n as usize]) } else { None }
    }

    /// Index into per-type tables.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name that `/proc/buddyinfo` and `/proc/zoneinfo` give it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
            Self::Movable => "Movable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_agree() {
        let names = ["DMA", "DMA32", "Normal", "Movable"];
        for (n, ty) in ZoneType::ALL.into_iter().enumerate() {
            assert_eq!(ty.index(), n);
            assert_eq!(ty.name(), names[n]);
            assert_eq!(ZoneType::from_number(n as u8), Some(ty));
        }
        assert_eq!(ZoneType::from_number(4), None);
    }
}

//! One error for all steps of a boot, so that `?` takes a kernel from its map to its first frame.

use core::fmt;
use zonal::error::{BuildError, ContiguousError, RangeError, ResizeError};
use zonal::map::MapError;
use zonal::plan::PlanError;
use zonal::zonelist::DistanceError;
use zonal::{AllocError, FreeError, Pfn};
use zonal_tables::PieceTooSmall;

/// What went wrong.
///
/// ```
/// use zonal_kernel::Error;
/// assert_eq!(Error::NotBooted.to_string(), "the allocator is not built yet");
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A request before the allocator was built.
    NotBooted,
    /// It is built already, or another CPU is building it.
    AlreadyBooted,
    /// `Machine::address` is null, or not aligned to a frame, for the frame of the tables.
    BadAddress {
        /// The frame.
        frame: Pfn,
    },
    /// The memory map.
    Map(MapError),
    /// The plan.
    Plan(PlanError),
    /// The tables.
    Tables(PieceTooSmall),
    /// The range of addresses for the tables is too small, or does not begin at a page.
    TableRange {
        /// Bytes of the range.
        given: u64,
        /// Bytes of the tables.
        wanted: u64,
    },
    /// Memory that comes has no room for its own tables: bring more of it at once, or take their frames from the
    /// zones.
    TablesFill {
        /// Frames that come.
        frames: u64,
        /// Frames that the tables may need.
        wanted: u64,
    },
    /// Building the allocator.
    Build(BuildError),
    /// A table of the firmware.
    Acpi(crate::acpi::AcpiError),
    /// A device tree.
    #[cfg(feature = "fdt")]
    DeviceTree(crate::boot_map::device_tree::DeviceTreeError),
    /// Distances between nodes that cannot be.
    Distance(DistanceError),
    /// A request that was refused.
    Alloc(AllocError),
    /// A request for contiguous frames that was refused.
    Contiguous(ContiguousError),
    /// A free that was refused.
    Free(FreeError),
    /// A range that could not be had or freed.
    Range(RangeError),
    /// Memory that could not come.
    Resize(ResizeError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBooted => f.write_str("the allocator is not built yet"),
            Self::AlreadyBooted => f.write_str("the allocator is built already"),
            Self::BadAddress { frame } => {
                write!(f, "the address of frame {frame}, for the tables, is null or not aligned")
            }
            Self::Map(error) => error.fmt(f),
            Self::Plan(error) => error.fmt(f),
            Self::Tables(error) => error.fmt(f),
            Self::TableRange { given, wanted } => write!(
                f,
                "the tables need {wanted} bytes of addresses from a page on, the range has {given}"
            ),
            Self::TablesFill { frames, wanted } => {
                write!(f, "{frames} frames that come have no room for {wanted} of their tables")
            }
            Self::Build(error) => error.fmt(f),
            Self::Acpi(error) => error.fmt(f),
            #[cfg(feature = "fdt")]
            Self::DeviceTree(error) => error.fmt(f),
            Self::Distance(error) => error.fmt(f),
            Self::Alloc(error) => error.fmt(f),
            Self::Contiguous(error) => error.fmt(f),
            Self::Free(error) => error.fmt(f),
            Self::Range(error) => error.fmt(f),
            Self::Resize(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

macro_rules! from {
    ($($variant:ident($error:ty)),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}
from!(Map(MapError), Plan(PlanError), Tables(PieceTooSmall), Build(BuildError), Alloc(AllocError));
from!(Acpi(crate::acpi::AcpiError), Distance(DistanceError), Contiguous(ContiguousError));
from!(Free(FreeError), Range(RangeError), Resize(ResizeError));
#[cfg(feature = "fdt")]
from!(DeviceTree(crate::boot_map::device_tree::DeviceTreeError));

impl From<zonal::error::RefusedFree> for Error {
    /// The block leaks: it could not be freed.
    fn from(refused: zonal::error::RefusedFree) -> Self {
        Self::Free(refused.error)
    }
}

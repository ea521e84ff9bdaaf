//! Why an arena could not be opened.

use crate::region::RegionError;
use std::error::Error;
use std::fmt;
use zonal::error::BuildError;
use zonal::plan::PlanError;

/// Why an arena could not be opened. Nothing of it is left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ArenaError {
    /// Memory or address space: more than there is, no huge pages, nothing asked for.
    Memory(RegionError),
    /// No allocator can be planned so: number of CPUs, more frames than a table can have.
    Plan(PlanError),
    /// The tables do not fit the plan: a mistake in this library.
    Build(BuildError),
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot open the arena: ")?;
        match self {
            Self::Memory(error) => error.fmt(f),
            Self::Plan(error) => error.fmt(f),
            Self::Build(error) => error.fmt(f),
        }
    }
}

impl Error for ArenaError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Memory(error) => error,
            Self::Plan(error) => error,
            Self::Build(error) => error,
        })
    }
}

impl From<RegionError> for ArenaError {
    fn from(error: RegionError) -> Self {
        Self::Memory(error)
    }
}

impl From<BuildError> for ArenaError {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

impl From<PlanError> for ArenaError {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

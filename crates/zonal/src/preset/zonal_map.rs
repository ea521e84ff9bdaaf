use super::Zonal;
use crate::pcp::Stacks;
use crate::zone::free_map::Mapped;

crate::preset! {
    /// [`Zonal`] over a map of free memory, with stacks: to become the default.
    pub ZonalMap = "ZonalMap", over Zonal { Free = Mapped, Pcp = Stacks<16> }
}

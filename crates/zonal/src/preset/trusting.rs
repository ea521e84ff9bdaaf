use super::Zonal;
use crate::frame::ByStore;
use crate::pcp::Stacks;
use crate::pcp::stack::MAX_HIGH;

crate::preset! {
    /// [`Zonal`] for hosts whose callers free no frame twice at the same instant: a single frame is freed without a
    /// compare-exchange. [`ByStore`] says what that gives up.
    pub Trusting = "Trusting", over Zonal { Pcp = Stacks<16, MAX_HIGH, ByStore> }
}

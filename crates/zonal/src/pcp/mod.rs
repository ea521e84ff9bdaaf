//! Per-CPU pages: what a CPU keeps of a zone, so that most requests take no zone lock.
//!
//! May import `types`, `platform`, `frame`, `boot`, `trace`, `policy` and `zone`. All of it is
//! guarded by the CPU's slot for the zone, but for the stacks that a CPU's owner reaches without
//! entering it: the rules S-1 to S-3 (`stack/mod.rs`) guard these.

mod linked;
mod linked63;
pub(crate) mod per_cpu_pages;
pub mod stack;

pub use crate::boot::tuning::Tuning;
pub use crate::policy::pcp::{Bulk, PcpPolicy, Stop, ZoneContext};
pub use linked::Linked;
pub use linked63::Linked63;
pub use stack::Stacks;

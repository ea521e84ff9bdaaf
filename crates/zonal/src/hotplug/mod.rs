//! Memory that comes and goes while the allocator runs.
//!
//! May import everything but `compact`, `preset` and `report`. One change at a time: `resizing` guards
//! the sizes.

pub(crate) mod online;
mod release;
mod settle;

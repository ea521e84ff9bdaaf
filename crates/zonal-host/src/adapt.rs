//! What an arena and its pages are for other crates, by features of the same names.

#[cfg(feature = "allocator-api2")]
mod allocator;
#[cfg(feature = "allocator-api2")]
pub use allocator::SharedArena;
#[cfg(feature = "bytes")]
mod bytes;
#[cfg(feature = "compio")]
mod compio;

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod device;
pub mod disk_file;
mod geometry;
pub mod hard_disk;
mod segments;
pub mod solid_state;
mod write_cache;

pub use disk_file::{Disk, builtin, builtins};

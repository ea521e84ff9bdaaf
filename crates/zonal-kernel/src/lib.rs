//! Bare metal as a host of [zonal]: an allocator in a static, built once from the boot map.
//!
//! A kernel says five things of its machine ([`Machine`]): the number of a CPU, its node, how
//! interrupts are kept away and let in again, and where a frame can be read and written. The rest is
//! here: locks that mask interrupts ([`irq_lock`]), per-CPU slots
//! ([`irq_slot`]), tables carved from the map, zeroed frames
//! ([`Kernel`]), and the static itself ([`Global`]). [`boot_map`] takes the memory maps of boot loaders,
//! [`acpi`] finds processors and nodes. `no_std`, stable, no heap.
//!
//! | feature | what |
//! |---|---|
//! | `multiboot2`, `limine`, `bootloader_api`, `uefi` | the memory maps of these boot loaders, and of firmware |
//! | `fdt` | the memory of a flattened device tree |
//! | `x86_64` | frames for the page tables of the crate `x86_64`: `page_tables` |
//! | `page_table_multiarch`, `ax-page-table-multiarch` | frames for those of this crate, by its old and its new name: `paging_handler` |
//! | `ax-allocator` | a `PageAllocator` of this crate: `page_allocator` |
//!
//! ```
//! # mod fake { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/mod.rs")); }
//! # use fake::Fake as Pc;
//! # use zonal_kernel::boot_map::e820::Entry;
//! # fn kernel(e820: &[Entry], kernel_end: u64, cpus: u32) -> Result<(), zonal_kernel::Error> {
//! use zonal::{Request, plan::Config};
//! use zonal_kernel::Global;
//!
//! static FRAMES: Global<Pc> = Global::new();
//!
//! let map = FRAMES.map(e820, &[0..kernel_end], [])?;
//! // SAFETY: `Pc::address` maps all memory, no other code uses what the map calls usable, and there is no
//! // other allocator.
//! unsafe { map.boot(Config::new(cpus))? };
//! let frame = FRAMES.alloc(&Request::frame())?;
//! FRAMES.free(frame)?;
//! # Ok(())
//! # }
//! # let end = fake::memory(64 << 20);
//! # kernel(&[Entry::usable(0, end)], 1 << 20, 1).unwrap();
//! ```
//!
//! The whole program is `examples/first_frame.rs`; a kernel that boots is in the project's folder `kernel`.
#![no_std]

pub mod acpi;
pub mod arch;
pub mod boot_map;
pub mod cpu_home;
mod error;
pub mod global;
pub mod irq_lock;
pub mod irq_slot;
pub mod kernel;
pub mod machine;
#[cfg(feature = "ax-allocator")]
pub mod page_allocator;
#[cfg(feature = "x86_64")]
pub mod page_tables;
#[cfg(any(feature = "page_table_multiarch", feature = "ax-page-table-multiarch"))]
pub mod paging_handler;
mod sync;

pub use cpu_home::CpuHome;
pub use error::Error;
pub use global::Global;
pub use kernel::Kernel;
pub use machine::Machine;

/// Programs that users read and copy: compiled as examples of the documentation.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Own;
    #[doc = include_str!("../../../docs/book/src/kernel.md")]
    struct Page;
}

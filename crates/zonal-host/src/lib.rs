//! User space as a host of [zonal]: threads as CPUs, locks, arenas on real memory, huge
//! pages, NUMA. Linux only.
//!
//! Most users want an [`Arena`], perhaps with a [`Pager`] behind it that gives pages up and moves
//! them when memory is short or in pieces; the parts are there for those who build their own. On the
//! platform side [`threads::Threads`] implements [`zonal::platform::Platform`] with
//! [`park_lock`] as the zone lock and [`biased_slot`] as the per-CPU slot, whose owner takes no
//! atomic read-modify-write thanks to [`fence`]; on the memory side there are [`region`]
//! and [`numa`].
//!
//! What an arena and its pages are for other crates comes by features, all off by default:
//!
//! | feature | what |
//! |---|---|
//! | `allocator-api2` | an arena as the allocator of collections, by reference or as `SharedArena` |
//! | `bytes` | `Bytes::from` an [`OwnedPage`] |
//! | `compio` | an [`OwnedPage`] as `IoBuf` and `IoBufMut` |
//! | `io-uring` | pages as registered buffers: `fixed_pages` |
//! | `vm-memory` | an arena as a region of guest memory: `guest` |
//!
//! ```
//! use zonal::Request;
//! use zonal_host::Arena;
//! let arena = Arena::builder().bytes(16 << 20).open()?;
//! let mut page = arena.alloc(&Request::frame())?;
//! page.fill(42);
//! assert_eq!(page.len(), 4096);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("zonal-host maps memory the way Linux does; other systems need a host of their own");

mod adapt;
mod alarm;
pub mod arena;
pub mod biased_slot;
mod birth;
pub mod compactor;
pub mod cpu;
pub mod errno;
pub mod fence;
#[cfg(feature = "io-uring")]
pub mod fixed_pages;
mod gate;
#[cfg(feature = "vm-memory")]
pub mod guest;
pub mod numa;
pub mod pager;
pub mod park_lock;
pub mod region;
mod sync;
mod sys;
pub mod threads;
pub mod usdt;
mod waiting;

#[cfg(feature = "allocator-api2")]
pub use adapt::SharedArena;
pub use arena::{Arena, ArenaError, Handle, HugePages, OwnedPage, Page};
pub use compactor::Compactor;
pub use pager::Pager;
pub use threads::Threads;
pub use usdt::Usdt;
#[doc(inline)]
pub use zonal_runs as runs;

/// Programs that users read and copy: compiled and run as examples of the documentation.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../README.md")]
    struct Own;
    #[doc = include_str!("../../../docs/book/src/start.md")]
    struct Start;
    #[doc = include_str!("../../../docs/book/src/porting.md")]
    struct Porting;
    #[doc = include_str!("../../../docs/book/src/presets.md")]
    struct Presets;
    #[doc = include_str!("../../../docs/book/src/observability.md")]
    struct Observability;
}

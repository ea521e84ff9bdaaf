//! A page cache for real files in user space, with a hard bound on memory. Its pages are frames of
//! a [zonal] arena.
//!
//! The kernel's page cache cannot be bounded or steered by a program, and `O_DIRECT` has no readahead and
//! keeps nothing. This is between the two, for snapshot pagers of virtual machines, embedded databases, file
//! systems in user space:
//!
//! - never more pages than the bound, and no failure while a page can go: clean ones go, dirty ones are written
//!   back first; the bound can change at run time;
//! - a hit takes no lock, and no system call; [`File::pin`] gives the bytes without a copy;
//! - a missing page is read once, for all who wait for it; streams are read ahead;
//! - which page goes is a policy, as a type: [`TwoLists`], [`S3Fifo`], [`Sieve`], [`MultiGen`];
//! - errors of the store stay where they belong: a reader is told of its range, each handle of a
//!   failed write by its next [`sync`](File::sync), and the pages stay.
//!
//! ```
//! use zonal_cache::{Cache, FileStore, S3Fifo};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("file");
//! let cache = Cache::<S3Fifo>::builder().memory_in_all(16 << 20).open()?;
//! let file = cache.open(FileStore::create(&path)?)?;
//! file.write_at(b"hello", 4094)?;
//! let mut bytes = [0; 5];
//! assert_eq!(file.read_at(&mut bytes, 4094)?, 5);
//! let pinned = file.pin(4096..4099)?;
//! assert_eq!(pinned.as_slice(), Some(&b"llo"[..]));
//! file.sync()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Without `std`
//! The mechanism is generic over its [`Host`](host::Host) and needs a heap only. What knows of threads and
//! files is behind the feature `std`, which is on.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "std")]
mod arena_frames;
mod asked;
mod behind;
mod blocks;
pub mod cache;
mod discard;
pub mod error;
mod events;
pub mod evict;
#[cfg(feature = "std")]
pub mod faulty_store;
#[cfg(feature = "std")]
mod fetch;
mod file;
#[cfg(feature = "std")]
mod file_store;
pub mod frames;
mod gate;
mod held;
pub mod host;
mod inner;
mod later;
mod lists;
mod load;
pub mod lru;
#[cfg(feature = "std")]
mod memory_store;
pub mod owned;
mod page;
#[cfg(feature = "std")]
mod page_copy;
mod pinned;
mod place;
mod reach;
mod read;
mod recent;
mod reclaim;
#[cfg(feature = "std")]
pub mod reclaimer;
pub mod region;
#[cfg(feature = "std")]
pub mod ring;
mod room;
mod runs;
mod scan;
#[cfg(feature = "std")]
pub mod shrinker;
mod slots;
mod stats;
pub mod store;
mod sync;
pub mod table;
#[cfg(feature = "std")]
pub mod threads;
mod throttle;
mod velocity;
pub mod window;
#[cfg(feature = "std")]
mod within;
mod write;
mod writeback;
#[cfg(feature = "std")]
mod writer;

#[cfg(feature = "std")]
pub use arena_frames::ArenaFrames;
pub use cache::PageCache;
pub use error::CacheError;
pub use evict::{MultiGen, S3Fifo, Sieve, TwoLists};
#[cfg(feature = "std")]
pub use faulty_store::FaultyStore;
pub use file::{Advice, File};
#[cfg(feature = "std")]
pub use file_store::{FileStore, NotDirect};
pub use held::ListStats;
pub use inner::Setup;
#[cfg(feature = "std")]
pub use memory_store::MemoryStore;
pub use pinned::Pinned;
#[cfg(feature = "std")]
pub use reclaimer::Reclaimer;
pub use region::AnonRegion;
#[cfg(feature = "std")]
pub use ring::Ring;
#[cfg(feature = "std")]
pub use shrinker::Shrinker;
pub use stats::Stats;
#[cfg(feature = "std")]
pub use threads::{Cache, CacheFile, Threads};
pub use velocity::{Scans, ZoneReclaim};

/// Programs that users read and copy: compiled and run as examples of the documentation.
#[cfg(all(doctest, feature = "std"))]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Own;
    #[doc = include_str!("../../../docs/book/src/page-cache.md")]
    struct Book;
}

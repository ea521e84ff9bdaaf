//! Frames for the page tables of the crate `page_table_multiarch`, which goes on as `ax-page-table-multiarch`.
//!
//! Its page tables know their frames by a type alone. [`Handler`] is that type, of a kernel that says where its
//! allocator is:
//!
//! ```
//! # mod fake { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/mod.rs")); }
//! # use fake::Fake as Pc;
//! use zonal::preset::Zonal;
//! use zonal_kernel::Global;
//! use zonal_kernel::paging_handler::{Handler, TableFrames};
//!
//! static FRAMES: Global<Pc> = Global::new();
//!
//! struct Own;
//!
//! // SAFETY: only page tables call `Handler<Own>`, and none is used after it was dropped.
//! unsafe impl TableFrames for Own {
//!     type Machine = Pc;
//!     type Preset = Zonal;
//!     fn frames() -> &'static Global<Pc> {
//!         &FRAMES
//!     }
//! }
//!
//! # #[cfg(all(feature = "page_table_multiarch", target_arch = "x86_64"))]
//! type Table = page_table_multiarch::x86_64::X64PageTable<Handler<Own>>;
//! ```

use crate::{Error, Global, Machine};
use core::fmt;
use core::marker::PhantomData;
use zonal::policy::Sound;
use zonal::units::FRAME_SIZE;
use zonal::{Bounds, Pfn, Request};

/// A kernel's allocator, as a type.
///
/// # Safety
/// The crate's trait has safe functions that free: no code calls those of [`Handler`] with frames that are not its
/// own, or are in use. Page tables do not, as long as each is used as the crate says.
pub unsafe trait TableFrames: Sized + 'static {
    /// The machine.
    type Machine: Machine;
    /// The preset: [`Zonal`](zonal::preset::Zonal) if in doubt.
    type Preset: Sound;

    /// The allocator.
    fn frames() -> &'static Global<Self::Machine, Self::Preset>;

    /// How a frame is requested; its order is not looked at. Unmovable, if not said otherwise.
    fn request() -> Request {
        Request::frame()
    }

    /// A free was refused: the frames were not allocated. They stay as they are. The crate's trait has no way to say
    /// so.
    fn refused(error: Error) {
        let _ = error;
    }
}

/// The handler: a type, of which there is no value.
///
/// A frame is one of the CPU's own, as by [`Global::alloc`]; several, or aligned ones, are frames in a row
/// ([`Global::alloc_pages`]). They are not zeroed; the crate does that for its tables.
pub struct Handler<K>(PhantomData<fn() -> K>);

impl<K> fmt::Debug for Handler<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

impl<K: TableFrames> Handler<K> {
    /// The address of `count` frames at a multiple of `align` bytes.
    fn alloc(count: usize, align: usize) -> Option<usize> {
        if !align.is_multiple_of(FRAME_SIZE) {
            return None;
        }
        let bounds = Bounds::ANY.aligned((align / FRAME_SIZE) as u64);
        let first = K::frames().alloc_pages(count as u64, &K::request(), &bounds).ok()?;
        usize::try_from(first.address()).ok()
    }

    fn free(address: usize, count: usize) {
        let first = Pfn::containing(address as u64);
        // SAFETY: by the contract of `TableFrames`, who calls this gives up frames of its own.
        let freed = unsafe { K::frames().free_pages(first, count as u64) };
        freed.unwrap_or_else(K::refused);
    }

    fn address(frame: usize) -> usize {
        K::Machine::address(zonal::map::PhysAddr(frame as u64)).expose_provenance()
    }
}

macro_rules! handler {
    ($feature:literal, $tables:ident, $addresses:ident) => {
        #[cfg(feature = $feature)]
        impl<K: TableFrames> $tables::PagingHandler for Handler<K> {
            fn alloc_frames(num: usize, align: usize) -> Option<$addresses::PhysAddr> {
                Self::alloc(num, align).map($addresses::PhysAddr::from_usize)
            }

            fn dealloc_frames(paddr: $addresses::PhysAddr, num: usize) {
                Self::free(paddr.as_usize(), num);
            }

            fn phys_to_virt(paddr: $addresses::PhysAddr) -> $addresses::VirtAddr {
                $addresses::VirtAddr::from_usize(Self::address(paddr.as_usize()))
            }
        }
    };
}

handler!("page_table_multiarch", page_table_multiarch, memory_addr);
handler!("ax-page-table-multiarch", ax_page_table_multiarch, ax_memory_addr);

//! Address space: reserved whole, backed by memory piece by piece, given back, unmapped at the
//! end.
//!
//! Reserving maps nothing accessible and costs nothing however large (the kernel only notes
//! the range). [`commit`](Region::commit) then makes a part readable and writable. Where the
//! memory comes from is decided for each part when it is reserved:
//!
//! - *counted*: the kernel checks on commit that the memory exists, as its overcommit setting
//!   says, so asking for more than there is fails at once, with an error;
//! - *on touch*: nothing is promised and nothing checked; a page comes with the first access,
//!   and if there is none left then, the kernel ends a process. For sparse use of very large
//!   ranges, and for tables that are mostly never touched.
//!
//! Either way fresh pages read as zero.
//!
//! # Who owns what after a call that failed
//! Another thread may map memory at any address at any moment that is not mapped, so a region must
//! never unmap, replace or change what it has not mapped itself. It keeps to that as follows:
//!
//! | refused | then |
//! |---|---|
//! | a mapping ([`reserve`](Region::reserve), [`huge_pages`](Region::huge_pages)) | nothing is left mapped. No mapping is ever replaced (`MAP_FIXED`): where memory of another kind is to be, the region gives the addresses up first, and takes them again only if they are still free (`MAP_FIXED_NOREPLACE`, Linux 4.17; before that a kernel answers with another place, which is given back). Lost to another thread, it looks for other addresses, eight times |
//! | cutting a reservation to size | the ends stay mapped, and are unmapped with the region |
//! | [`commit`](Region::commit), advice, [`give_back`](Region::give_back), [`resident`](Region::resident) | the region is as it was; of a part committed in vain some may be accessible |
//! | unmapping, when a region is dropped (the process has as many mappings as it may, and this would split one) | the addresses stay mapped, and are lost; the memory behind them goes back to the kernel |
//!
//! ```
//! use zonal_host::region::Region;
//! let region = Region::reserve(1 << 40)?;
//! region.commit(0..1 << 20)?;
//! // SAFETY: committed just now, and known to this code only.
//! unsafe { region.base().write(7) };
//! assert_eq!(region.resident(0..1 << 20)?, 4096);
//! # Ok::<(), zonal_host::region::RegionError>(())
//! ```

mod error;
mod mapping;

pub use error::RegionError;

use mapping::Mapping;

use crate::errno::Errno;
use crate::sys::{Calls, Kernel};
use libc::{MAP_HUGETLB, MAP_NORESERVE};
use libc::{PROT_NONE, PROT_READ, PROT_WRITE};
use std::ops::Range;
use std::ptr::NonNull;
use zonal::Order;
use zonal::units::FRAME_SIZE;

/// Bytes of a huge page, as used for [`Region::huge_pages`].
pub const HUGE_PAGE: usize = Order::HUGE.bytes();

/// How often other addresses are looked for when another thread was quicker.
const TRIES: u32 = 8;

/// How idle memory is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GiveBack {
    /// Now: the pages are gone, and read as zero when next touched (`MADV_DONTNEED`).
    Now,
    /// When the kernel needs them: until then they keep their contents, and a write keeps a
    /// page for good. Cheaper if most are used again soon (`MADV_FREE`, Linux 4.5).
    WhenNeeded,
}

/// Bytes of a page of the kernel's.
fn page_bytes() -> usize {
    // SAFETY: takes a number, touches no memory of the caller.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(FRAME_SIZE)
}

/// A kernel maps, binds, gives back and counts whole pages of its own.
const fn check_page(bytes: usize) -> Result<(), RegionError> {
    if bytes > FRAME_SIZE { Err(RegionError::LargePages { bytes }) } else { Ok(()) }
}

/// A range of address space that this value owns; unmapped when dropped.
///
/// It hands out addresses, not references: what is read or written there is up to its user.
#[derive(Debug)]
pub struct Region {
    /// Unmapped at the end.
    _mapping: Mapping,
    /// The first byte and the length of what the region's user sees.
    base: NonNull<u8>,
    bytes: usize,
    huge_pages: bool,
}

// SAFETY: a Region is an address and a length; all its methods are system calls that the kernel
// serialises, and it never reads or writes the memory itself.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `bytes` of address space, counted when committed: see
    /// [`reserve_mixed`](Self::reserve_mixed).
    ///
    /// # Errors
    /// [`RegionError::Empty`], [`RegionError::NoAddressSpace`].
    pub fn reserve(bytes: usize) -> Result<Self, RegionError> {
        Self::reserve_mixed(bytes, 0)
    }

    /// Reserves address space: first `counted` bytes, then `on_touch` bytes, each rounded up to
    /// whole frames. The base is aligned to the largest block.
    ///
    /// # Errors
    /// [`RegionError::Empty`] if both are 0, [`RegionError::NoAddressSpace`]; [`RegionError::LargePages`] on a
    /// kernel whose pages are not 4 KiB.
    pub fn reserve_mixed(counted: usize, on_touch: usize) -> Result<Self, RegionError> {
        let none =
            |errno| RegionError::NoAddressSpace { bytes: counted.saturating_add(on_touch), errno };
        let too_large = || none(Errno::NO_MEMORY);
        let counted = counted.checked_next_multiple_of(FRAME_SIZE).ok_or_else(too_large)?;
        let on_touch = on_touch.checked_next_multiple_of(FRAME_SIZE).ok_or_else(too_large)?;
        let bytes = counted.checked_add(on_touch).ok_or_else(too_large)?;
        bytes.checked_add(Order::MAX.bytes()).ok_or_else(too_large)?;
        if bytes == 0 {
            return Err(RegionError::Empty);
        }
        check_page(page_bytes())?;
        // Whether memory is counted is a property of a mapping from when it is made.
        if counted == 0 {
            let mapping = Mapping::aligned(bytes, MAP_NORESERVE).map_err(none)?;
            return Ok(Self::new(mapping, bytes));
        }
        if on_touch == 0 {
            return Ok(Self::new(Mapping::aligned(bytes, 0).map_err(none)?, bytes));
        }
        for _ in 0..TRIES {
            let mut mapping = Mapping::aligned(bytes, 0).map_err(none)?;
            mapping.cut_to(mapping.offset() + counted).map_err(none)?;
            if mapping.grow(on_touch, PROT_NONE, MAP_NORESERVE).map_err(none)? {
                return Ok(Self::new(mapping, bytes));
            }
        }
        Err(none(Errno::EXISTS))
    }

    /// The region of `bytes` from the first aligned one on.
    fn new(mapping: Mapping, bytes: usize) -> Self {
        debug_assert!(mapping.offset() + bytes <= mapping.bytes, "{mapping:?}");
        // SAFETY: all of the region is inside the mapping.
        let base = unsafe { mapping.start.add(mapping.offset()) };
        Self { _mapping: mapping, base, bytes, huge_pages: false }
    }

    /// Memory on touch, all of it accessible, zero: for tables.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve) and [`commit`](Self::commit).
    pub fn zeroed(bytes: usize) -> Result<Self, RegionError> {
        let region = Self::reserve_mixed(0, bytes)?;
        region.commit(0..region.bytes)?;
        Ok(region)
    }

    /// `bytes`, rounded up, of memory in huge pages from the kernel's pool (hugetlbfs), all of
    /// them set aside for this region at once.
    ///
    /// # Errors
    /// [`RegionError::NoHugePages`] if the pool has too few; else as
    /// [`reserve`](Self::reserve).
    pub fn huge_pages(bytes: usize) -> Result<Self, RegionError> {
        let rounded = bytes.checked_next_multiple_of(HUGE_PAGE);
        let rounded =
            rounded.ok_or(RegionError::NoAddressSpace { bytes, errno: Errno::NO_MEMORY })?;
        if rounded == 0 {
            return Err(RegionError::Empty);
        }
        check_page(page_bytes())?;
        let nowhere = |errno| RegionError::NoAddressSpace { bytes: rounded, errno };
        let none = |errno| RegionError::NoHugePages { bytes: rounded, errno };
        for _ in 0..TRIES {
            let mut mapping = Mapping::aligned(rounded, 0).map_err(nowhere)?;
            mapping.cut_to(mapping.offset()).map_err(nowhere)?;
            let flags = MAP_HUGETLB | libc::MAP_HUGE_2MB;
            if mapping.grow(rounded, PROT_READ | PROT_WRITE, flags).map_err(none)? {
                return Ok(Self { huge_pages: true, ..Self::new(mapping, rounded) });
            }
        }
        Err(nowhere(Errno::EXISTS))
    }

    /// The first byte. Readable and writable where committed, for as long as the region lives.
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes: a multiple of the frame size, not 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it consists of huge pages from the pool.
    #[must_use]
    pub const fn is_huge_pages(&self) -> bool {
        self.huge_pages
    }

    fn address(&self, offset: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset)
    }

    /// Whole frames, inside, in order, not empty.
    pub(crate) fn check(&self, part: &Range<usize>) -> Result<(), RegionError> {
        let whole = (part.start | part.end).is_multiple_of(FRAME_SIZE);
        if part.is_empty() || part.end > self.bytes || !whole {
            return Err(RegionError::BadPart { start: part.start, end: part.end, len: self.bytes });
        }
        Ok(())
    }

    /// Makes a part readable and writable. Parts, here and below, are in bytes from the base,
    /// in whole frames. What is committed already keeps its contents. Huge pages from the pool
    /// are committed from the start.
    ///
    /// # Errors
    /// [`RegionError::BadPart`]; [`RegionError::NoMemory`] if the part is counted and there is
    /// not that much.
    pub fn commit(&self, part: Range<usize>) -> Result<(), RegionError> {
        self.check(&part)?;
        let (at, bytes) = (self.address(part.start), part.len());
        // SAFETY: only adds permissions, to a mapping that is ours.
        let done = unsafe { Kernel::mprotect(at, bytes, PROT_READ | PROT_WRITE) };
        done.map_err(|errno| RegionError::NoMemory { bytes, errno })
    }

    /// # Safety
    /// `advice` must leave the contents of memory that is in use alone.
    unsafe fn advise(&self, part: Range<usize>, advice: i32) -> Result<(), RegionError> {
        self.check(&part)?;
        let at = self.address(part.start);
        // SAFETY: inside our mapping; the contents are the caller's affair by contract.
        let done = unsafe { Kernel::madvise(at, part.len(), advice) };
        done.map_err(|errno| RegionError::Advice { advice, errno })
    }

    /// Asks the kernel to back a part with huge pages where it can (`MADV_HUGEPAGE`).
    ///
    /// # Errors
    /// [`RegionError::BadPart`]; [`RegionError::Advice`] if the kernel was built without.
    pub fn advise_huge(&self, part: Range<usize>) -> Result<(), RegionError> {
        // SAFETY: about backing only; contents do not change.
        unsafe { self.advise(part, libc::MADV_HUGEPAGE) }
    }

    /// Gives the memory of a part back to the kernel; the part stays committed.
    ///
    /// # Errors
    /// [`RegionError::BadPart`]; [`RegionError::Advice`] if the kernel cannot, and always for
    /// huge pages from the pool: these were set aside once and could not be had back for
    /// certain.
    ///
    /// # Safety
    /// No code may hold a reference into the part, and what it holds must be of no use any more:
    /// afterwards a byte reads as zero, or, with [`GiveBack::WhenNeeded`], as what it was until
    /// some moment and as zero from then on, unless its frame is written first.
    pub unsafe fn give_back(&self, part: Range<usize>, how: GiveBack) -> Result<(), RegionError> {
        let advice = match how {
            GiveBack::Now => libc::MADV_DONTNEED,
            GiveBack::WhenNeeded => libc::MADV_FREE,
        };
        if self.huge_pages {
            return Err(RegionError::Advice { advice, errno: Errno::INVALID });
        }
        // SAFETY: the contents are of no use by contract.
        unsafe { self.advise(part, advice) }
    }

    /// How many bytes of a part are in memory now.
    ///
    /// # Errors
    /// [`RegionError::BadPart`]; [`RegionError::Os`] if the kernel does not say.
    pub fn resident(&self, part: Range<usize>) -> Result<usize, RegionError> {
        /// Frames asked about at once.
        const STEP: usize = 4096;
        self.check(&part)?;
        let mut map = [0_u8; STEP];
        let mut frames = 0;
        for at in part.clone().step_by(STEP * FRAME_SIZE) {
            let bytes = (part.end - at).min(STEP * FRAME_SIZE);
            let asked = self.address(at);
            let call = "mincore";
            Kernel::mincore(asked, bytes, &mut map)
                .map_err(|errno| RegionError::Os { call, errno })?;
            let bits = map.iter().take(bytes / FRAME_SIZE);
            frames += bits.filter(|&&byte| byte & 1 == 1).count();
        }
        Ok(frames * FRAME_SIZE)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

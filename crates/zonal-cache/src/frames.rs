//! Where the frames come from.
//!
//! ```
//! use std::sync::Arc;
//! use zonal_cache::ArenaFrames;
//! use zonal_cache::frames::Frames;
//! use zonal_host::Arena;
//! let frames = ArenaFrames::new(Arc::new(Arena::builder().bytes(1 << 20).open()?));
//! let frame = frames.alloc().unwrap();
//! // SAFETY: just allocated, and no reference into it was made.
//! unsafe { frames.free(&[frame]) };
//! # Ok::<(), zonal_host::arena::ArenaError>(())
//! ```

use core::ops::Range;
use core::ptr::NonNull;
use core::slice;
use zonal::Pfn;
use zonal::page_state::PageState;
use zonal::policy::trace::Trace;
use zonal::units::FRAME_SIZE;

/// Bytes of a page.
pub const PAGE: usize = FRAME_SIZE;

/// A source of single frames.
///
/// # Safety
/// From [`alloc`](Self::alloc) to [`free`](Self::free) a frame is the caller's alone, and
/// [`address`](Self::address) gives the place of [`PAGE`] bytes of it, initialised, readable and
/// writable, aligned to [`PAGE`]; always the same. Where they are [`JOINED`](Self::JOINED)
/// that place is good for the bytes of all frames in a row from it on that are allocated, one after the other. Of frames that are only counted
/// ([`HAS_BYTES`](Self::HAS_BYTES)) it is not asked.
pub unsafe trait Frames: Send + Sync + 'static {
    /// Where what happens to pages of these frames is recorded: [`Off`](zonal::policy::trace::Off) for nowhere.
    /// Called with the lock of a list held.
    type Trace: Trace;
    /// Whether there is memory behind the frames. Where there is none (a simulator's) a cache reads, lists, writes
    /// back and frees pages as ever and copies no byte: what it shows of a page is empty, and so is each of
    /// the pieces that a store is given, one for a page.
    const HAS_BYTES: bool = true;
    /// Whether all frames are of one piece of memory, in their order, so that the bytes of several in a row are a slice.
    const JOINED: bool = false;

    /// A frame, `None` if there is none. Its bytes may be anything.
    fn alloc(&self) -> Option<Pfn>;

    /// A frame for a page that a program writes to: an allocator that limits what is dirty in a zone looks for it elsewhere
    /// ([`Request::write`](zonal::Request::write)), later for one that is `less_throttled`. The default makes no
    /// difference.
    fn alloc_to_write(&self, less_throttled: bool) -> Option<Pfn> {
        let _ = less_throttled;
        self.alloc()
    }

    /// Bytes of a frame will soon be read: a hint, given before it is known to be so, with the low half of the
    /// frame's number, which may be any. The default does nothing.
    #[inline(always)]
    fn expect(&self, low: u32, bytes: Range<usize>) {
        let _ = (low, bytes);
    }

    /// Copies bytes of a page to where a reader wants them, which is as long. `near`: they were copied a short while ago, and
    /// are in a cache of the CPU. The default copies them as any other.
    #[inline(always)]
    fn read(&self, from: &[u8], into: &mut [u8], near: bool) {
        let _ = near;
        into.copy_from_slice(from);
    }

    /// Fills `frames` from the first on, with neighbours in memory as far as that can be had; how many. Each is a frame
    /// as from [`alloc`](Self::alloc). The default asks for one after the other.
    fn alloc_some(&self, frames: &mut [Pfn]) -> usize {
        for (count, frame) in frames.iter_mut().enumerate() {
            match self.alloc() {
                Some(one) => *frame = one,
                None => return count,
            }
        }
        frames.len()
    }

    /// Takes frames back.
    ///
    /// # Safety
    /// They are from [`alloc`](Self::alloc), each once, and no reference into them is left.
    unsafe fn free(&self, frames: &[Pfn]);

    /// Where a frame is that was allocated.
    fn address(&self, frame: Pfn) -> NonNull<u8>;

    /// Counts `change` frames more (or less) in a state, where this one is. The default does not.
    fn count(&self, _frame: Pfn, _state: PageState, _change: i32) {}

    /// How many zones and nodes the frames are in.
    fn zones(&self) -> (usize, usize) {
        (1, 1)
    }

    /// The zone and the node of a frame, below those numbers.
    fn zone_of(&self, _frame: Pfn) -> (usize, usize) {
        (0, 0)
    }

    /// Gives memory of free frames back to the system, as far as that can be done; bytes.
    fn give_back(&self) -> u64 {
        0
    }
}

/// A range of the bytes of a page, as far as there are any.
#[inline(always)]
pub(crate) const fn span<M: Frames>(range: Range<usize>) -> Range<usize> {
    if M::HAS_BYTES { range } else { 0..0 }
}

/// Copies bytes into a page, if it has any.
#[inline(always)]
pub(crate) fn write<M: Frames>(page: &mut [u8], from: &[u8]) {
    if M::HAS_BYTES {
        page.copy_from_slice(from);
    }
}

/// The bytes of a frame.
///
/// # Safety
/// For as long as the reference lives the frame is allocated, and no thread writes to it.
#[inline(always)]
pub(crate) unsafe fn bytes<M: Frames>(frames: &M, frame: Pfn) -> &[u8] {
    if !M::HAS_BYTES {
        return &[];
    }
    let at = frames.address(frame).as_ptr();
    // SAFETY: readable and initialised, by the contract of `Frames`; not written, by our own.
    unsafe { slice::from_raw_parts(at, PAGE) }
}

/// The bytes of `count` frames in a row.
///
/// # Safety
/// As for [`bytes`], of each of them. The frames are [`JOINED`](Frames::JOINED), or it is one.
pub(crate) unsafe fn bytes_of_row<M: Frames>(frames: &M, first: Pfn, count: usize) -> &[u8] {
    if !M::HAS_BYTES {
        return &[];
    }
    let at = frames.address(first).as_ptr();
    // SAFETY: all of it readable and initialised, by the contract of `Frames`; not written, by our own.
    unsafe { slice::from_raw_parts(at, count * PAGE) }
}

/// The bytes of a frame, to write.
///
/// # Safety
/// For as long as the reference lives the frame is allocated, and no thread has another reference into it.
#[expect(
    clippy::mut_from_ref,
    reason = "the frames are memory, of which the caller has this piece"
)]
pub(crate) unsafe fn bytes_mut<M: Frames>(frames: &M, frame: Pfn) -> &mut [u8] {
    if !M::HAS_BYTES {
        return &mut [];
    }
    let at = frames.address(frame).as_ptr();
    // SAFETY: writable and initialised, by the contract of `Frames`; ours alone, by our own.
    unsafe { slice::from_raw_parts_mut(at, PAGE) }
}

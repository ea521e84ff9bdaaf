//! What the user of an arena does when memory is short or in pieces.
//!
//! An arena knows which frames are allocated, not what for. A [`Pager`] does: it can give up
//! what can be had again (a clean page of a cache), and it can move what is reached through a
//! table of its own. [`Builder::pager`](crate::arena::Builder::pager) puts it behind an arena,
//! which asks it from the slow path: for frames by [`reclaim`](Pager::reclaim), and, while it
//! compacts, to move a page by [`migrate`](Pager::migrate).
//!
//! # Which pages can be moved
//! Only blocks that the pager keeps by number ([`Arena::alloc_raw`](crate::Arena::alloc_raw),
//! [`Page::into_raw`](crate::Page::into_raw)). A [`Page`](crate::Page) stays where it is: its
//! holder may have a `&[u8]` into it. An arena cannot tell the two apart, so it asks for any
//! allocated block in movable memory, and the pager refuses all but its own. Because a wrong
//! answer makes the arena hand out memory that a holder still uses, `Pager` is an unsafe trait.
//!
//! # What the arena does whatever the pager does
//! No lock and no slot of the arena is held during a call (I-7), so everybody else goes on. A
//! request made with [`no_wait`](zonal::Request::no_wait) never gets here.
//!
//! | the pager | then |
//! |---|---|
//! | refuses | the page stays; the request looks elsewhere, and fails with its usual error |
//! | takes for ever | this request does not return, and no other thread compacts that zone: one that wants a large block there waits for some milliseconds and goes without; all others go on |
//! | panics | the panic reaches the caller that made the request; a page that was to be moved stays |
//! | overstates what it freed | the request looks again in vain, at most 16 times |
//! | understates it | the request may fail, or be served, by what there is |
//! | asks this arena for memory meanwhile | gets it without a pager, so it is never inside itself |
//! | says that it moved a page, and did not tell the owner | a broken contract, see [`Pager`] |
//!
//! A pager with a lock must not ask the arena for memory with it held, except with `no_wait`:
//! the request may come back to the same lock. From inside a call to move a page, a request for a large
//! block should be `no_wait` as well: it may wait, in vain, for the compaction that it is inside.
//!
//! Source of the idea: the shrinkers and the page migration of Linux (2.6.23 and later), one
//! object for both.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use zonal::slow_path::Shortage;
//! use zonal::{Order, Pfn, Request};
//! use zonal_host::Arena;
//! use zonal_host::pager::{FreeFrames, Pager};
//!
//! /// Frames of one arena whose contents can be had again.
//! #[derive(Default)]
//! struct Spare(Mutex<Vec<Pfn>>);
//!
//! // SAFETY: it moves nothing.
//! unsafe impl Pager for Spare {
//!     fn reclaim(&self, frames: &dyn FreeFrames, shortage: &Shortage) -> u64 {
//!         let Ok(mut spare) = self.0.try_lock() else { return 0 };
//!         let wanted = spare.len().min(shortage.request.order().frames() as usize);
//!         // SAFETY: the frames were ours, allocated one by one, and are off the list now.
//!         let free = |pfn| unsafe { frames.free_raw(pfn, Order::ZERO) };
//!         spare.drain(..wanted).filter(|&pfn| free(pfn).is_ok()).count() as u64
//!     }
//! }
//!
//! let spare = Arc::new(Spare::default());
//! let arena = Arena::builder().bytes(4 << 20).pager(spare.clone()).open()?;
//! while let Ok(pfn) = arena.alloc_raw(&Request::frame().no_wait()) {
//!     spare.0.lock().unwrap().push(pfn);
//! }
//! assert_eq!(spare.0.lock().unwrap().len(), 1024, "all there is");
//! let page = arena.alloc(&Request::frame().zero())?;
//! assert_eq!(spare.0.lock().unwrap().len(), 1023);
//! assert!(page.iter().all(|&byte| byte == 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/page_cache.rs` has one that moves pages too.

use std::cell::Cell;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use zonal::policy::Policy;
use zonal::slow_path::Shortage;
use zonal::{Allocator, FreeError, Order, Pfn, ZoneId};
use zonal::{Immovable, Migration};

/// Where a pager frees what it gives up, whichever preset the arena has.
pub trait FreeFrames {
    /// Frees the block of `order` that starts at `pfn`.
    ///
    /// # Errors
    /// [`FreeError`] if that is not what was allocated, or is another arena's; then nothing
    /// has changed.
    ///
    /// # Safety
    /// As [`Arena::free_raw`](crate::Arena::free_raw).
    unsafe fn free_raw(&self, pfn: Pfn, order: Order) -> Result<(), FreeError>;
}

impl<S: Policy> FreeFrames for Allocator<'_, crate::Threads, S> {
    unsafe fn free_raw(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        Allocator::free_raw(self, pfn, order)
    }
}

impl<S: Policy> FreeFrames for crate::Arena<S> {
    unsafe fn free_raw(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        // SAFETY: the same contract.
        unsafe { crate::Arena::free_raw(self, pfn, order) }
    }
}

/// Gives pages up and moves them: see the [module](self). Every method has a default, which
/// does nothing. They are called on any thread, several at once.
///
/// # Safety
/// The implementor of [`migrate`](Self::migrate) promises for every `Ok` it returns:
/// - until then `page.from` was the pager's alone: allocated with just `page.order`
///   from the arena that asks, known by its number only, and not freed, also not by another
///   thread between the call and its end;
/// - no reference into it is left, and no code but the arena's will use or free it. It is the arena's.
///
/// And for every call that ends otherwise, by [`Immovable`] or by a panic: no code has kept
/// `page.to`. Such a call may have written to it.
///
/// A pager that does not implement `migrate` has nothing to promise. One that does keeps this
/// by holding, throughout `migrate`, the lock under which its blocks are found, used and taken
/// out to be freed; it then says [`Immovable`] for any block it does not find, and for any that it
/// finds with another order than `page.order`. That happens: the arena read the order without any
/// lock, and since then the block may have been freed, and the pager been given its first frame
/// again as a smaller or a larger block. (The arena refuses such a page itself as long as it sees
/// it, but the pager alone can look under its lock.) It must forget its blocks before their arena
/// is dropped, for another may be mapped in the same place.
pub unsafe trait Pager: Send + Sync + 'static {
    /// Frees blocks because a request cannot be served, to `frames`, which is the arena that
    /// asks. Returns the number of frames; for 0 the request gives up. Called again, up to 16
    /// times a request ([`Shortage::attempt`] counts), until the request can be served.
    fn reclaim(&self, frames: &dyn FreeFrames, shortage: &Shortage) -> u64 {
        let _ = (frames, shortage);
        0
    }

    /// Moves what `page.from` holds to `page.to` ([`copy_block`] does that part) and from now
    /// on uses that. It may wait (for a lock, for I/O) only if [`Migration::may_wait`]. Called by
    /// several threads at once, also for one page: the lock under which it is found decides.
    ///
    /// After `Ok`, `page.to` is the pager's, as if from
    /// [`Arena::alloc_raw`](crate::Arena::alloc_raw); what the implementor promises is said at
    /// the [trait](Self#safety).
    ///
    /// # Errors
    /// [`Immovable`] if the page stays where it is. The default refuses every page.
    ///
    /// # Safety
    /// For the caller, that is for the arena: `page.to` is a block of `page.order`, just
    /// allocated from the same arena as `page.from`, which no other code knows of; it is the
    /// implementor's until the call ends, and stays so if it ends with `Ok`.
    unsafe fn migrate(&self, page: &Migration) -> Result<(), Immovable> {
        let _ = page;
        Err(Immovable)
    }

    /// A zone fell below its low watermark. Must not block; wake a thread that frees frames.
    /// By default an arena has no watermarks: [`Builder::watermarks`].
    ///
    /// [`Builder::watermarks`]: crate::arena::Builder::watermarks
    fn wake_reclaim(&self, zone: ZoneId) {
        let _ = zone;
    }

    /// A zone had no block of `order`. Must not block.
    fn wake_compaction(&self, zone: ZoneId, order: Order) {
        let _ = (zone, order);
    }
}

/// Copies the bytes of a block to another, both in open arenas, where frame numbers are
/// addresses. Costs a copy of `order.bytes()`.
///
/// # Safety
/// - Both are blocks of `order`, wholly inside arenas that stay open meanwhile, and not the
///   same.
/// - No other code writes to `from` meanwhile, or reads or writes `to` or has a reference
///   into it.
pub unsafe fn copy_block(from: Pfn, to: Pfn, order: Order) {
    // Arenas expose their memory's address when they open.
    let source = ptr::with_exposed_provenance::<u8>(from.address() as usize);
    let target = ptr::with_exposed_provenance_mut::<u8>(to.address() as usize);
    // SAFETY: both are memory of arenas by contract, mapped, readable and writable, and their
    // bytes initialised; blocks of one order overlap only if they are the same; no other code
    // uses the target or writes the source. (The kernel may zero a frame of the source that was
    // not written since it was allocated; its owner cannot rely on either contents.)
    unsafe { ptr::copy_nonoverlapping(source, target, order.bytes()) };
}

/// How many pagers a thread may be inside at once, each through a request of the one before.
const DEPTH: usize = 4;

thread_local! {
    /// Addresses of the pagers that this thread is inside; 0 for none.
    static INSIDE: Cell<[usize; DEPTH]> = const { Cell::new([0; DEPTH]) };
}

/// Being inside a pager, on this thread, until dropped; by a panic too.
#[derive(Debug)]
struct Inside(usize);

impl Drop for Inside {
    fn drop(&mut self) {
        let mut inside = INSIDE.get();
        inside[self.0] = 0;
        INSIDE.set(inside);
    }
}

/// A pager, called so that no thread gets into it from inside it.
#[derive(Clone)]
pub(crate) struct Registered(Arc<dyn Pager>);

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pager")
    }
}

impl Registered {
    pub(crate) fn new(pager: Arc<dyn Pager>) -> Self {
        Self(pager)
    }

    fn address(&self) -> usize {
        // Counted pointers point to counts at least, so this is no other pager's address.
        Arc::as_ptr(&self.0).addr()
    }

    /// `None` if the thread is inside already, or too deep inside others.
    fn enter(&self) -> Option<Inside> {
        let mut inside = INSIDE.get();
        if inside.contains(&self.address()) {
            return None;
        }
        let place = inside.iter().position(|&other| other == 0)?;
        inside[place] = self.address();
        INSIDE.set(inside);
        Some(Inside(place))
    }

    /// Whether this thread may ask it to move anything.
    pub(crate) fn can_migrate(&self) -> bool {
        self.enter().is_some()
    }

    pub(crate) fn reclaim(&self, frames: &dyn FreeFrames, shortage: &Shortage) -> u64 {
        self.enter().map_or(0, |_inside| self.0.reclaim(frames, shortage))
    }

    /// # Safety
    /// As [`Pager::migrate`].
    pub(crate) unsafe fn migrate(&self, page: &Migration) -> Result<(), Immovable> {
        let _inside = self.enter().ok_or(Immovable)?;
        // SAFETY: the same contract.
        unsafe { self.0.migrate(page) }
    }

    pub(crate) fn wake_reclaim(&self, zone: ZoneId) {
        self.0.wake_reclaim(zone);
    }

    pub(crate) fn wake_compaction(&self, zone: ZoneId, order: Order) {
        self.0.wake_compaction(zone, order);
    }
}

//! Building the allocator, in the static and in the memory that is taken for its tables: nothing larger
//! than a zone goes by the stack.

use super::{Frames, Global};
use crate::boot_map::{self, NodeRange};
use crate::{Error, Kernel, Machine};
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::Range;
use core::sync::atomic::Ordering::Release;
use zonal::map::{PfnRange, PhysAddr};
use zonal::plan::{Config, Draft, Plan, PlanError};
use zonal::policy::{Sound, Split};
use zonal::units::FRAME_SIZE;
use zonal::{Allocator, NodeId, Pfn};

/// Where the allocator's tables are to lie. The default: at the top of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TablePlace {
    /// On this node.
    pub node: Option<NodeId>,
    /// Below this frame: for a kernel that has mapped a part of its memory when it boots.
    pub below: Option<Pfn>,
}

/// What lies at the start of the piece of memory, before the tables.
type Head<M, S> = MaybeUninit<Frames<M, S>>;

/// A [`Global`] that is being built: the map so far. If it is dropped, it can be begun again.
pub struct Booting<M: Machine, S: Sound>(&'static Global<M, S>);

impl<M: Machine, S: Sound> Booting<M, S> {
    /// # Safety
    /// `taken` of the static was just raised, for this.
    pub(super) const unsafe fn new(global: &'static Global<M, S>) -> Self {
        Self(global)
    }

    pub(super) fn draft(&mut self) -> &mut Draft {
        // SAFETY: the draft outlives `self`, which alone may reach it while `taken` is raised (the contract
        // of `new`), and is borrowed exclusively for what is returned. The allocator is not there
        // yet: once it is, no `Booting` is made any more.
        unsafe { &mut *self.0.draft.get() }
    }

    /// Adds a range, in bytes, that is in use until the kernel has booted: see
    /// [`BootMap::reclaim_later`](crate::boot_map::BootMap::reclaim_later).
    ///
    /// # Errors
    /// As [`Global::map`].
    pub fn reclaim_later<N>(mut self, range: &Range<u64>, nodes: N) -> Result<Self, Error>
    where
        N: IntoIterator<Item = NodeRange, IntoIter: Clone>,
    {
        boot_map::add_reclaim_later(self.draft().regions(), range, nodes)?;
        Ok(self)
    }

    /// Adds a range, in bytes, in which memory of `node` may come later: see
    /// [`BootMap::offline`](crate::boot_map::BootMap::offline).
    ///
    /// # Errors
    /// As [`Global::map`].
    pub fn offline(mut self, range: &Range<u64>, node: NodeId) -> Result<Self, Error> {
        boot_map::add_offline(self.draft().regions(), range, node)?;
        Ok(self)
    }

    /// Builds the allocator, with its tables at the top of the memory. Other CPUs may be running;
    /// those that ask before it is done get [`Error::NotBooted`]. Costs regions² + pageblocks + caches, and 1.2
    /// bytes a frame are written. Less than 8 KiB of stack.
    ///
    /// # Safety
    /// Of all memory that the map does not call reserved, from now on (memory that is
    /// [`Offline`](zonal::map::RangeKind::Offline) from when it comes,
    /// [`ReclaimLater`](zonal::map::RangeKind::ReclaimLater) from when it is released):
    ///
    /// - it is memory, and no code uses it but through this allocator;
    /// - for a frame of it, `M::address` is where it can be read and written, on every CPU, and the
    ///   frames of a range of the map follow each other there as they do in physical memory.
    ///
    /// # Errors
    /// [`Error`]: a map or a configuration that does not work, no room for the tables. Then nothing was
    /// written to the memory, and it can be begun again.
    pub unsafe fn boot(self, config: Config) -> Result<(), Error>
    where
        Frames<M, S>: Sync,
    {
        // SAFETY: the caller's promise.
        unsafe { self.boot_in(config, TablePlace::default()) }
    }

    /// As [`boot`](Self::boot), with a word on where the tables lie.
    ///
    /// # Safety
    /// As [`boot`](Self::boot); if the tables are to be below a frame, the second promise is for
    /// the memory below it at first, and for all other memory from when the first request is made.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub unsafe fn boot_in(mut self, config: Config, place: TablePlace) -> Result<(), Error>
    where
        Frames<M, S>: Sync,
    {
        self.draft().sanitise()?;
        // SAFETY: the caller's promise.
        unsafe { self.build(&config, place) }
    }

    /// Plans for the sanitised map, and builds.
    ///
    /// # Safety
    /// As [`boot_in`](Self::boot_in).
    pub(super) unsafe fn build(mut self, config: &Config, place: TablePlace) -> Result<(), Error>
    where
        Frames<M, S>: Sync,
    {
        let draft = self.draft();
        let plan = draft.plan(config, <S::Split as Split>::instances).map_err(error)?;
        let tables = zonal_tables::piece_bytes::<Kernel<M>, S>(plan);
        let head = size_of::<Head<M, S>>() as u64;
        let piece = draft.carve(head + tables, place.node, place.below).map_err(error)?;
        let global = self.0;
        // SAFETY: as in `draft`; shared from here on, and if it goes well for good, because `self` is not
        // dropped then. Else the reference is gone when `self` is.
        let plan: &'static Plan = unsafe { &*global.draft.get() }.planned();
        // SAFETY: the piece was just carved from the map, whose memory is ours to use and mapped: the
        // caller's promise.
        let allocator = unsafe { build_in(plan, piece)? };
        // Release: pairs with the acquire in `Global::frames`.
        global.allocator.store(allocator, Release);
        // What it holds stays taken.
        let _ = ManuallyDrop::new(self);
        Ok(())
    }
}

impl<M: Machine, S: Sound> Drop for Booting<M, S> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `Global::take`.
        self.0.taken.store(false, Release);
    }
}

impl<M: Machine, S: Sound> fmt::Debug for Booting<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Booting")
    }
}

/// A map that does not work is told as such.
fn error(error: PlanError) -> Error {
    match error {
        PlanError::Map(error) => Error::Map(error),
        error => Error::Plan(error),
    }
}

/// Builds the allocator with its tables in `piece`.
///
/// # Safety
/// The frames of `piece` are memory that no other code uses, now and later; they follow each other from
/// `M::address` of the first on, and have the bytes of a head and the tables of the plan. And for all memory of
/// the map the promise of [`Booting::boot`].
#[inline(never)]
unsafe fn build_in<M: Machine, S: Sound>(
    plan: &'static Plan,
    piece: PfnRange,
) -> Result<*mut Frames<M, S>, Error> {
    let bytes = piece.frames() as usize * FRAME_SIZE;
    let start = M::address(PhysAddr(piece.start.address()));
    let head = start.cast::<Head<M, S>>();
    if start.is_null() || !head.is_aligned() {
        return Err(Error::BadAddress { frame: piece.start });
    }
    // SAFETY: at the start of the piece, which is ours alone for good, is aligned (seen above) and has
    // the bytes of a head and more; `MaybeUninit` needs no initialisation.
    let head: &'static mut Head<M, S> = unsafe { &mut *head };
    let size = size_of::<Head<M, S>>();
    // SAFETY: inside the piece: it has room for the head, and for the tables after it.
    let rest = unsafe { start.add(size) }.cast::<MaybeUninit<u8>>();
    // SAFETY: the rest of the piece, behind the head, is ours alone for good; bytes have no alignment,
    // and `MaybeUninit` needs no initialisation.
    let rest: &'static mut [MaybeUninit<u8>] =
        unsafe { core::slice::from_raw_parts_mut(rest, bytes - size) };
    let tables = zonal_tables::in_piece(plan, rest)?;
    // SAFETY: the allocator manages memory of the map, for which the caller promises it.
    let kernel = unsafe { Kernel::new() };
    Ok(head.write(Allocator::new(kernel, plan, tables)?))
}

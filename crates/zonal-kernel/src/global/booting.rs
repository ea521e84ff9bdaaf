//! Building the allocator, in the static and in the memory that is taken for its tables: nothing larger
//! than a zone goes by the stack.

use super::sparse::{self, MapTables, Sparse, TableRange, Wanted};
use super::{Frames, Global};
use crate::boot_map::{self, NodeRange};
use crate::{Error, Kernel, Machine};
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Release;
use zonal::map::{PfnRange, PhysAddr};
use zonal::plan::{Config, Draft, Plan, PlanError};
use zonal::policy::{Sound, Split};
use zonal::units::FRAME_SIZE;
use zonal::{Allocator, MAX_NODES, NodeId, Pfn, Storage};
use zonal_tables::sparse::Layout;

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
    ///   frames of a range of the map follow each other there as they do in physical memory;
    /// - no token ([`Block`](zonal::Block), [`Contiguous`](zonal::Contiguous)) of another allocator for a frame of
    ///   the same number is given to this one, which may take it for its own.
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

    /// As [`boot_in`](Self::boot_in), with tables only for memory that is there: of `range` the kernel maps the
    /// pages that are needed ([`MapTables`]). Frames for them are taken from the memory that they speak of,
    /// node by node. Memory that comes later brings tables by [`Global::online`].
    ///
    /// # Safety
    /// As [`boot_in`](Self::boot_in). The bytes of `range` can be read on all CPUs for good, are zero, and are no
    /// one's but the allocator's; no frame but those of zeros is written or goes away where they are mapped. What
    /// `M` promises of [`MapTables`] holds.
    ///
    /// # Errors
    /// As [`boot`](Self::boot); [`Error::TableRange`] if the range has no room for the tables.
    pub unsafe fn boot_sparse(
        mut self,
        config: Config,
        place: TablePlace,
        range: TableRange,
    ) -> Result<(), Error>
    where
        Frames<M, S>: Sync,
        M: MapTables,
    {
        self.draft().sanitise()?;
        // SAFETY: the caller's promise.
        unsafe { self.build_sparse(&config, place, Wanted::by::<M>(range)) }
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
        let bytes = head_bytes::<M, S>() + zonal_tables::piece_bytes::<Kernel<M>, S>(plan);
        let piece = draft.carve(bytes, place.node, place.below).map_err(error)?;
        // SAFETY: the piece was just carved from the map, whose memory is ours to use and mapped: the
        // caller's promise.
        let piece = unsafe { Piece::<M, S>::new(piece)? };
        // SAFETY: the caller's promise, for the rest of the map.
        let allocator = unsafe { build_flat(self.planned(), piece)? };
        self.publish(allocator);
        Ok(())
    }

    /// The same with tables for what is there. Not with the other, so that a kernel without this has no code
    /// of it.
    ///
    /// # Safety
    /// As [`boot_sparse`](Self::boot_sparse).
    unsafe fn build_sparse(
        mut self,
        config: &Config,
        place: TablePlace,
        wanted: Wanted,
    ) -> Result<(), Error>
    where
        Frames<M, S>: Sync,
    {
        let draft = self.draft();
        let plan = draft.plan(config, <S::Split as Split>::instances).map_err(error)?;
        let layout = wanted.layout::<S>(plan)?;
        let tables = zonal_tables::sparse::piece_bytes::<Kernel<M>, S>(plan);
        let bytes = head_bytes::<M, S>() + sparse::bit_words(&layout) * 8 + tables;
        let of_nodes = frames_of_nodes::<S>(plan, &layout, &wanted);
        let piece = draft.carve(bytes, place.node, place.below).map_err(error)?;
        let own = carve_of_nodes(draft, &of_nodes, place.below)?;
        // SAFETY: as in `build`.
        let piece = unsafe { Piece::<M, S>::new(piece)? };
        let plan = self.planned();
        // SAFETY: the pieces in `own` were carved as well; the rest is the caller's promise.
        let allocator = unsafe { build_sparse(self.0, plan, piece, (wanted, layout), &own)? };
        self.publish(allocator);
        Ok(())
    }

    /// The plan, when nothing is carved from its map any more.
    fn planned(&self) -> &'static Plan {
        // SAFETY: as in `draft`; shared from here on, and if it goes well for good, because `self` is not
        // dropped then. Else the reference is gone when `self` is.
        unsafe { &*self.0.draft.get() }.planned()
    }

    fn publish(self, allocator: *mut Frames<M, S>) {
        // Release: pairs with the acquire in `Global::frames`.
        self.0.allocator.store(allocator, Release);
        // What it holds stays taken.
        let _ = ManuallyDrop::new(self);
    }
}

/// Bytes of a head.
const fn head_bytes<M: Machine, S: Sound>() -> u64 {
    size_of::<Head<M, S>>() as u64
}

/// Builds the allocator with its tables behind it.
///
/// # Safety
/// For all memory of the map the promise of [`Booting::boot`].
#[inline(never)]
unsafe fn build_flat<M: Machine, S: Sound>(
    plan: &'static Plan,
    Piece { head, rest }: Piece<M, S>,
) -> Result<*mut Frames<M, S>, Error> {
    let tables = zonal_tables::in_piece(plan, rest)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { put(head, plan, tables)? })
}

/// Builds the allocator in its place. By itself, so that there is one way through it that needs stack.
///
/// # Safety
/// As [`build_flat`].
#[inline(never)]
unsafe fn put<M: Machine, S: Sound>(
    head: &'static mut Head<M, S>,
    plan: &'static Plan,
    tables: Storage<'static, Kernel<M>, S>,
) -> Result<&'static mut Frames<M, S>, Error> {
    // SAFETY: the allocator manages memory of the map, for which the caller promises it.
    let kernel = unsafe { Kernel::new() };
    Ok(head.write(Allocator::new(kernel, plan, tables)?))
}

/// For each node, at most how many frames the tables of its memory take.
fn frames_of_nodes<S: Sound>(plan: &Plan, layout: &Layout, wanted: &Wanted) -> [u64; MAX_NODES] {
    let mut frames = [0; MAX_NODES];
    for range in plan.map().present() {
        let most = sparse::most_frames::<S>(plan, layout, wanted.start(), range.pfns());
        frames[usize::from(range.node.0) % MAX_NODES] += most;
    }
    frames
}

/// Takes these frames out of the memory of each node, or of another one if it has no such piece.
fn carve_of_nodes(
    draft: &mut Draft,
    frames: &[u64; MAX_NODES],
    below: Option<Pfn>,
) -> Result<[Option<PfnRange>; MAX_NODES], Error> {
    let mut own = [None; MAX_NODES];
    for (node, (frames, piece)) in (0..).zip(frames.iter().zip(&mut own)) {
        if *frames > 0 {
            let bytes = frames * FRAME_SIZE as u64;
            let carved = draft.carve(bytes, Some(NodeId(node)), below);
            *piece = Some(carved.or_else(|_| draft.carve(bytes, None, below)).map_err(error)?);
        }
    }
    Ok(own)
}

/// Maps the tables of all memory that is there, node by node, and builds the allocator in them.
///
/// # Safety
/// As [`Booting::boot_sparse`]; and the pieces in `own` are no other code's.
#[inline(never)]
unsafe fn build_sparse<M: Machine, S: Sound>(
    global: &'static Global<M, S>,
    plan: &'static Plan,
    piece: Piece<M, S>,
    (wanted, layout): (Wanted, Layout),
    own: &[Option<PfnRange>; MAX_NODES],
) -> Result<*mut Frames<M, S>, Error> {
    let (start, Piece { head, rest }) = (wanted.start(), piece);
    let (mapped, rest) = rest.split_at_mut(sparse::bit_words(&layout) as usize * 8);
    let sparse = wanted.begin(layout, bits_in(mapped));
    let mut left = *own;
    // SAFETY: the caller's promise.
    unsafe { bring_all::<M, S>(&sparse, plan, own, &mut left)? };
    // SAFETY: the range has room for the layout, begins at a page, shows zeros and is the allocator's: checked,
    // and the caller's promise. All memory that is there has its pages mapped, to zeroed frames.
    let tables = unsafe { zonal_tables::sparse::in_range(plan, start, rest)? };
    // SAFETY: the caller's promise.
    let allocator = unsafe { put(head, plan, tables)? };
    release_all(allocator, &left);
    // SAFETY: who raised `taken` alone writes it, until the release store of the allocator.
    unsafe { *global.sparse.get() = Some(sparse) };
    Ok(allocator)
}

/// Gives back what the tables did not need.
#[inline(never)]
fn release_all<M: Machine, S: Sound>(
    allocator: &Frames<M, S>,
    left: &[Option<PfnRange>; MAX_NODES],
) {
    for rest in left.iter().flatten().filter(|rest| !rest.is_empty()) {
        // If it is refused these few frames stay reserved.
        let _frames = allocator.release(rest.start..rest.end);
    }
}

/// Maps the tables of all memory that is there, with frames of the pieces of its nodes: from what is `left` of
/// those in `own`.
///
/// # Safety
/// The pieces are no other code's, and can be written at `M::address`.
#[inline(never)]
unsafe fn bring_all<M: Machine, S: Sound>(
    sparse: &Sparse,
    plan: &Plan,
    own: &[Option<PfnRange>; MAX_NODES],
    left: &mut [Option<PfnRange>; MAX_NODES],
) -> Result<(), Error> {
    // The tables' own memory too: what is left of it is the allocator's in the end.
    let memory = plan.map().present().map(|range| (usize::from(range.node.0), range.pfns()));
    let pieces = own.iter().enumerate().filter_map(|(node, piece)| Some((node, (*piece)?)));
    for (node, range) in memory.chain(pieces) {
        let next = || {
            let own = take_first(&mut left[node % MAX_NODES]);
            // The tables of a piece that lies on another node were counted for that one.
            let frame = own.or_else(|| left.iter_mut().find_map(take_first));
            frame.ok_or(Error::TablesFill { frames: 0, wanted: 1 })
        };
        // SAFETY: each frame of the pieces is taken once, and no other code uses them: the caller's promise.
        unsafe { sparse.bring::<M, S>(plan, range, next)? };
    }
    sparse.show();
    Ok(())
}

/// Words that are zero, in memory behind a head, whose size is a multiple of theirs.
fn bits_in(memory: &'static mut [MaybeUninit<u8>]) -> &'static [AtomicU64] {
    memory.fill(MaybeUninit::new(0));
    let words = memory.as_ptr().cast::<AtomicU64>();
    assert!(words.is_aligned(), "a head is not followed by words");
    // SAFETY: aligned, initialised, as long as the memory, and ours for good; the exclusive reference ends here.
    unsafe { core::slice::from_raw_parts(words, memory.len() / 8) }
}

/// Takes the first frame of what is left of a piece.
fn take_first(piece: &mut Option<PfnRange>) -> Option<PhysAddr> {
    let piece = piece.as_mut().filter(|piece| !piece.is_empty())?;
    let first = piece.start;
    piece.start = Pfn::new(first.get() + 1);
    Some(PhysAddr(first.address()))
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

/// The memory that was taken: room for the allocator, and what comes after it.
struct Piece<M: Machine, S: Sound> {
    head: &'static mut Head<M, S>,
    rest: &'static mut [MaybeUninit<u8>],
}

impl<M: Machine, S: Sound> Piece<M, S> {
    /// # Safety
    /// The frames of `piece` are memory that no other code uses, now and later; they follow each other from
    /// `M::address` of the first on, and have the bytes of a head.
    #[inline(never)]
    unsafe fn new(piece: PfnRange) -> Result<Self, Error> {
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
        Ok(Self { head, rest })
    }
}

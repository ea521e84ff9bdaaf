//! zonal's own presets, on the owned and on the shared path, over an arena of real memory.
//!
//! ```
//! use zonal::preset::Zonal;
//! use zonal_bench::subject::Subject;
//! use zonal_bench::subjects::zonal::{Owned, Preset};
//!
//! assert_eq!(<Preset<Zonal, Owned>>::PROFILE.name, "Zonal");
//! ```

use std::marker::PhantomData;
use std::sync::Arc;

use zonal::info::ZoneInfo;
use zonal::plan::{MAX_INSTANCES, SplitConfig};
use zonal::policy::Sound;
use zonal::{FreeCounts, MigrateType, Order, Pfn, Request, ZoneId, ZoneType};
use zonal_host::Arena;
use zonal_host::arena::{Builder, Handle};

use super::Entry;
use super::movable::Movable;
use crate::case::{self, Case, Spec};
use crate::figures::{Batches, LockWork};
use crate::program::{Every, Fragmenting};
use crate::subject::{FrameThread, FreeBlocks, Group, Path, Profile, Setup, Subject, SubjectError};
use crate::workload::{Workload, highalloc};

/// A preset, owned and shared, with every workload. A program lists those that it has.
#[must_use]
pub fn entries_of<S: Sound>() -> [Entry; 2] {
    [
        Entry::with::<Every>(<Preset<S, Owned>>::PROFILE, open::<S, Owned>)
            .aged::<Preset<S, Owned>>(),
        Entry::with::<Every>(<Preset<S, Shared>>::PROFILE, open::<S, Shared>),
    ]
}

/// Opens a preset for what `spec` asks of it.
///
/// # Errors
///
/// What the arena says.
pub fn open<S: Sound, W: Way>(spec: &Spec) -> Result<Arc<dyn Case>, SubjectError> {
    match spec.workload {
        Workload::StressHighalloc => highalloc::open::<S, W>(spec),
        _ if spec.options.compact => case::open::<Movable<S, W>, Fragmenting>(spec),
        _ => case::open::<Preset<S, W>, Every>(spec),
    }
}

/// An arena as all workloads but one use it: address space, since the frames are touched only by
/// workloads that are asked to. Presets that split zone types have an instance for each thread.
pub(super) fn builder<S: Sound>(setup: &Setup) -> Builder<S> {
    let threads = setup.threads.clamp(1, usize::from(MAX_INSTANCES));
    let split = SplitConfig::default().with_instances(ZoneType::Normal, threads as u8);
    let builder = Arena::builder().preset::<S>().reserve(setup.memory).split(split);
    let builder = builder.owners(setup.threads as u32);
    setup.regions.into_iter().fold(builder, Builder::regions)
}

/// The zones of an arena.
pub fn zones<S: Sound>(arena: &Arena<S>) -> impl Iterator<Item = ZoneInfo> + '_ {
    let ids = 0..u8::try_from(arena.zone_count()).unwrap_or(u8::MAX);
    ids.filter_map(|id| arena.zone_info(ZoneId(id)))
}

/// What was done under the zone locks of an arena.
#[must_use]
pub fn lock_work_of<S: Sound>(arena: &Arena<S>) -> LockWork {
    let mut work = LockWork::default();
    for zone in zones(arena) {
        let (holds, hold_max) = (zone.events.holds, zone.events.hold_max);
        work.add(&LockWork { holds, hold_max, batches: batches(&zone) });
    }
    work
}

/// The batches that linked per-CPU lists gave back to a zone.
fn batches(zone: &ZoneInfo) -> Option<Batches> {
    let (all, single_type) = (zone.events.free_batches, zone.events.single_type);
    (all > 0).then_some(Batches { all, single_type })
}

/// How a thread reaches the arena.
pub trait Way: Send + Sync + 'static {
    /// What its rows say.
    const PATH: Path;
    /// What they note.
    const NOTE: &'static str;
    /// A thread's access.
    type Thread<'a, S: Sound>: FrameThread<Block = Pfn>;
    /// Makes the access.
    ///
    /// # Errors
    /// If the thread cannot register.
    fn thread<S: Sound>(arena: &Arena<S>) -> Result<Self::Thread<'_, S>, SubjectError>;
}

/// Through a handle of the thread's own.
#[derive(Clone, Copy, Debug)]
pub struct Owned;

/// Through the arena, behind a try-lock.
#[derive(Clone, Copy, Debug)]
pub struct Shared;

impl Way for Owned {
    const PATH: Path = Path::Owned;
    const NOTE: &'static str = "a CPU handle a thread";
    type Thread<'a, S: Sound> = OwnedThread<'a, S>;

    fn thread<S: Sound>(arena: &Arena<S>) -> Result<OwnedThread<'_, S>, SubjectError> {
        let handle = arena.handle().map_err(|error| SubjectError::Init(error.to_string()))?;
        Ok(OwnedThread { handle, arena })
    }
}

impl Way for Shared {
    const PATH: Path = Path::Shared;
    const NOTE: &'static str = "the current CPU's cache, behind a try-lock";
    type Thread<'a, S: Sound> = SharedThread<'a, S>;

    fn thread<S: Sound>(arena: &Arena<S>) -> Result<SharedThread<'_, S>, SubjectError> {
        Ok(SharedThread { arena })
    }
}

/// An arena with the preset `S`, reached in the way `W`.
#[derive(Debug)]
pub struct Preset<S: Sound, W> {
    arena: Arena<S>,
    way: PhantomData<fn() -> W>,
}

impl<S: Sound, W: Way> Subject for Preset<S, W> {
    const PROFILE: Profile = Profile {
        name: S::NAME,
        path: W::PATH,
        group: Group::Zonal,
        note: W::NOTE,
        max_order: Order::MAX.get(),
        managed: true,
        bulk: true,
    };
    type Block = Pfn;
    type Thread<'a> = W::Thread<'a, S>;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        let arena =
            builder::<S>(setup).open().map_err(|error| SubjectError::Init(error.to_string()))?;
        Ok(Self { arena, way: PhantomData })
    }

    fn thread(&self, _index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        W::thread(&self.arena)
    }

    fn frames(&self) -> Option<usize> {
        Some(self.arena.len() / crate::subject::FRAME_BYTES)
    }

    fn free_blocks(&self) -> Option<FreeBlocks> {
        let mut free = FreeBlocks { blocks: FreeCounts::default(), cached: 0 };
        for zone in zones(&self.arena) {
            free.cached += zone.cached;
            let (sums, counts) = (free.blocks.iter_mut().flatten(), zone.blocks.iter().flatten());
            sums.zip(counts).for_each(|(sum, count)| *sum += count);
        }
        Some(free)
    }

    fn lock_work(&self) -> Option<LockWork> {
        Some(lock_work_of(&self.arena))
    }
}

/// What the measured loops ask for: movable frames, as page faults do.
const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

#[inline(always)]
fn request(order: u8) -> Option<Request> {
    Some(MOVABLE.with_order(Order::new(order)?))
}

/// Writes one byte to a frame of `arena`.
///
/// # Safety
/// The frame is the caller's.
#[inline(always)]
unsafe fn touch<S: Sound>(arena: &Arena<S>, pfn: Pfn) {
    if let Some(address) = arena.address_of(pfn) {
        // SAFETY: the frame is the caller's, and the arena's memory is writable.
        unsafe { address.write_volatile(1) };
    }
}

/// One thread's handle.
#[derive(Debug)]
pub struct OwnedThread<'a, S: Sound> {
    handle: Handle<'a, S>,
    arena: &'a Arena<S>,
}

impl<S: Sound> FrameThread for OwnedThread<'_, S> {
    type Block = Pfn;

    #[inline(always)]
    fn alloc(&mut self, order: u8) -> Option<Pfn> {
        self.handle.alloc_raw(&request(order)?).ok()
    }

    #[inline(always)]
    fn alloc_as(&mut self, order: u8, migrate: MigrateType) -> Option<Pfn> {
        self.handle.alloc_raw(&Request::new(Order::new(order)?).migrate(migrate)).ok()
    }

    fn frame(&self, block: Pfn) -> Option<u64> {
        Some(block.get())
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: Pfn, order: u8) {
        let Some(order) = Order::new(order) else { return };
        // SAFETY: the caller frees what it allocated, once.
        let freed = unsafe { self.handle.free_raw(block, order) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    #[inline(always)]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> usize {
        if self.handle.alloc_bulk(&MOVABLE, out).is_ok() { out.len() } else { 0 }
    }

    #[inline(always)]
    unsafe fn free_bulk(&mut self, blocks: &[Pfn]) {
        // SAFETY: the caller frees what it allocated, once.
        let freed = unsafe { self.handle.free_bulk(blocks) };
        debug_assert_eq!(freed.refused, 0, "{freed:?}");
    }

    #[inline(always)]
    unsafe fn touch(&mut self, block: Pfn) {
        // SAFETY: the caller has the block allocated.
        unsafe { touch(self.arena, block) };
    }
}

/// One thread's share in the arena.
#[derive(Debug)]
pub struct SharedThread<'a, S: Sound> {
    arena: &'a Arena<S>,
}

impl<S: Sound> FrameThread for SharedThread<'_, S> {
    type Block = Pfn;

    #[inline(always)]
    fn alloc(&mut self, order: u8) -> Option<Pfn> {
        self.arena.alloc_raw(&request(order)?).ok()
    }

    #[inline(always)]
    fn alloc_as(&mut self, order: u8, migrate: MigrateType) -> Option<Pfn> {
        self.arena.alloc_raw(&Request::new(Order::new(order)?).migrate(migrate)).ok()
    }

    fn frame(&self, block: Pfn) -> Option<u64> {
        Some(block.get())
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: Pfn, order: u8) {
        let Some(order) = Order::new(order) else { return };
        // SAFETY: the caller frees what it allocated, once.
        let freed = unsafe { self.arena.free_raw(block, order) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    #[inline(always)]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> usize {
        if self.arena.alloc_bulk(&MOVABLE, out).is_ok() { out.len() } else { 0 }
    }

    #[inline(always)]
    unsafe fn free_bulk(&mut self, blocks: &[Pfn]) {
        // SAFETY: the caller frees what it allocated, once.
        let freed = unsafe { self.arena.free_bulk(blocks) };
        debug_assert_eq!(freed.refused, 0, "{freed:?}");
    }

    #[inline(always)]
    unsafe fn touch(&mut self, block: Pfn) {
        // SAFETY: the caller has the block allocated.
        unsafe { touch(self.arena, block) };
    }
}

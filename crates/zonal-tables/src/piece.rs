//! Tables in a piece of memory.

use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, AtomicU64};
use zonal::plan::Plan;
use zonal::platform::{Platform, Slot};
use zonal::policy::Policy;
use zonal::zone::tables::FreeWords;
use zonal::{CpuHomes, OutsideSlot, PerCpuPages, SharedState, Storage, TablePart, TableSize, Zone};

/// The piece of memory is too small for the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceTooSmall {
    /// Bytes of the piece.
    pub given: usize,
    /// Bytes that would do, whatever its alignment.
    pub wanted: u64,
}

impl fmt::Display for PieceTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { given, wanted } = self;
        write!(f, "the allocator's tables need {wanted} bytes, the piece of memory has {given}")
    }
}

impl core::error::Error for PieceTooSmall {}

/// Bytes of a table, with what aligning its start may cost.
const fn room<T>(elements: u64) -> u64 {
    let bytes = elements.saturating_mul(size_of::<T>() as u64);
    bytes.saturating_add(alignment::<T>() as u64)
}

/// Words begin at a cache line: a line of a map of free memory is one.
const fn alignment<T>() -> usize {
    if size_of::<T>() == size_of::<AtomicU64>() { CACHE_LINE } else { align_of::<T>() }
}

const CACHE_LINE: usize = 64;

/// How many bytes a piece needs for the tables of `plan`, whatever its alignment. O(1).
#[must_use]
pub fn piece_bytes<P, S>(plan: &Plan) -> u64
where
    P: Platform<Byte = AtomicU8, Word = AtomicU64>,
    S: Policy,
{
    bytes_of::<P, S>(plan, |_| true)
}

/// As [`piece_bytes`], with those tables only of what grows with the memory that are `wanted`.
pub(crate) fn bytes_of<P, S>(plan: &Plan, wanted: impl Fn(TablePart) -> bool) -> u64
where
    P: Platform<Byte = AtomicU8, Word = AtomicU64>,
    S: Policy,
{
    let size = TableSize::of::<S>(plan);
    let parts = TablePart::ALL.into_iter().filter(|&part| wanted(part));
    let rooms = parts.map(|part| match part {
        TablePart::States => room::<AtomicU8>(size.frames),
        _ => room::<AtomicU64>(size.elements(part)),
    });
    let words = rooms.fold(0, u64::saturating_add);
    let others = [
        room::<Zone<P, S>>(size.zones),
        room::<P::Slot<PerCpuPages<S>>>(size.caches),
        room::<OutsideSlot<P, S>>(size.caches),
        room::<CpuHomes<S>>(size.cpus),
        room::<SharedState<P>>(1),
    ];
    others.iter().fold(words, |all, &one| all.saturating_add(one))
}

/// Lays the tables of `plan` out in `piece`, which it zeroes. Its memory is the allocator's for
/// `'m`; what it holds is not dropped. O(frames).
///
/// ```
/// use core::mem::MaybeUninit;
/// use zonal::map::{MemoryMap, PhysAddr, Region};
/// use zonal::plan::{Config, Plan};
/// use zonal::platform::single::SingleThread;
/// use zonal::preset::Linux416;
/// use zonal::{Allocator, Request};
///
/// let mut piece = vec![MaybeUninit::uninit(); 1 << 20]; // a kernel carves it from its map
/// let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 << 20)])?.sanitise()?;
/// let plan = Plan::new(map, Config::new(1), |_, _, _| 1)?;
/// let storage = zonal_tables::in_piece(&plan, &mut piece)?;
/// let allocator = Allocator::<_, Linux416>::new(SingleThread, &plan, storage)?;
/// assert!(allocator.alloc(&Request::frame()).is_ok());
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
///
/// # Errors
/// [`PieceTooSmall`] says how many bytes would do; then nothing was written.
pub fn in_piece<'m, P, S>(
    plan: &Plan,
    piece: &'m mut [MaybeUninit<u8>],
) -> Result<Storage<'m, P, S>, PieceTooSmall>
where
    P: Platform<Byte = AtomicU8, Word = AtomicU64>,
    S: Policy,
{
    let mut rest = Rest::new(piece, piece_bytes::<P, S>(plan))?;
    let states = |rest: &mut Rest<'m>, count| &*rest.table(count, || AtomicU8::new(0));
    let words = |rest: &mut Rest<'m>, _, count| &*rest.table(count, || AtomicU64::new(0));
    Ok(lay_out(&TableSize::of::<S>(plan), &mut rest, states, words))
}

/// The same in a piece that is zero already, as memory that a system has just mapped is: what the
/// number of frames decides is taken as it is, so that of a piece for a TiB only those pages take memory
/// whose frames are used. O(CPUs × zones).
///
/// ```
/// use zonal::map::{MemoryMap, PhysAddr, Region};
/// use zonal::plan::{Config, Plan};
/// use zonal::platform::single::SingleThread;
/// use zonal::preset::Zonal;
/// use zonal::{Allocator, Request};
///
/// let piece = vec![0; 1 << 20].leak(); // or a mapping
/// let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 << 20)])?.sanitise()?;
/// let plan = Plan::new(map, Config::new(1), |_, _, _| 1)?;
/// let storage = zonal_tables::in_zeroed_piece(&plan, piece)?;
/// let allocator = Allocator::<_, Zonal>::new(SingleThread, &plan, storage)?;
/// assert!(allocator.alloc(&Request::frame()).is_ok());
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
///
/// Over a piece that is not zero the allocator is not made, or hands out nothing that can be relied on. The
/// piece is lent for ever: what is written to it has bytes between its parts that are no values.
///
/// # Errors
/// [`PieceTooSmall`] says how many bytes would do; then nothing was written.
pub fn in_zeroed_piece<P, S>(
    plan: &Plan,
    piece: &'static mut [u8],
) -> Result<Storage<'static, P, S>, PieceTooSmall>
where
    P: Platform<Byte = AtomicU8, Word = AtomicU64>,
    S: Policy,
{
    let piece: *mut [u8] = piece;
    // SAFETY: `MaybeUninit<u8>` is laid out like `u8`, and the only other reference ended with the line
    // above; for a lifetime that does not end no code reads as `u8` what is written here.
    let piece = unsafe { &mut *(piece as *mut [MaybeUninit<u8>]) };
    let mut rest = Rest::new(piece, piece_bytes::<P, S>(plan))?;
    let states = |rest: &mut Rest<'static>, count| {
        // SAFETY: the bytes cut off are as they came, initialised; any is a value of an `AtomicU8`.
        unsafe { rest.taken::<AtomicU8>(count) }
    };
    let words = |rest: &mut Rest<'static>, _, count| {
        // SAFETY: the bytes cut off are as they came, initialised; any eight are one of an `AtomicU64`.
        unsafe { rest.taken::<AtomicU64>(count) }
    };
    Ok(lay_out(&TableSize::of::<S>(plan), &mut rest, states, words))
}

/// All tables, one after the other; `states` and `words` make those of atomics.
pub(crate) fn lay_out<'m, P, S>(
    size: &TableSize,
    rest: &mut Rest<'m>,
    states: impl Fn(&mut Rest<'m>, u64) -> &'m [AtomicU8],
    words: impl Fn(&mut Rest<'m>, TablePart, u64) -> &'m [AtomicU64],
) -> Storage<'m, P, S>
where
    P: Platform<Byte = AtomicU8, Word = AtomicU64>,
    S: Policy,
{
    let shared = rest.table(1, SharedState::new);
    let words = |rest: &mut Rest<'m>, part| words(rest, part, size.elements(part));
    Storage {
        states: states(rest, size.frames),
        pageblocks: words(rest, TablePart::Pageblocks),
        free: FreeWords([0, 1, 2].map(|slice| words(rest, TablePart::Free(slice)))),
        zones: rest.table(size.zones, Zone::vacant),
        caches: rest.table(size.caches, || Slot::new(PerCpuPages::new())),
        outside: rest.table(size.caches, OutsideSlot::new),
        homes: rest.table(size.cpus, CpuHomes::new),
        shared: &shared[0],
    }
}

/// What is left of the piece.
pub(crate) struct Rest<'m>(&'m mut [MaybeUninit<u8>]);

impl<'m> Rest<'m> {
    /// The whole piece, if it has the bytes that are wanted.
    pub(crate) fn new(
        piece: &'m mut [MaybeUninit<u8>],
        wanted: u64,
    ) -> Result<Self, PieceTooSmall> {
        let given = piece.len();
        if wanted > given as u64 { Err(PieceTooSmall { given, wanted }) } else { Ok(Self(piece)) }
    }

    /// Cuts bytes off, at a multiple of `align`. For tables of any type.
    #[inline(never)]
    fn cut(&mut self, bytes: usize, align: usize) -> &'m mut [MaybeUninit<u8>] {
        let rest = core::mem::take(&mut self.0);
        let skipped = rest.as_ptr().align_offset(align);
        let (_, rest) = rest.split_at_mut(skipped);
        let (own, rest) = rest.split_at_mut(bytes);
        self.0 = rest;
        own
    }

    /// Cuts room for a table off. `piece_bytes` has counted it, so it fits.
    fn room<T>(&mut self, elements: u64) -> &'m mut [MaybeUninit<T>] {
        let elements = elements as usize;
        let own = self.cut(elements * size_of::<T>(), alignment::<T>());
        let table = own.as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: `own` is exclusively borrowed for 'm, is aligned for `T` (it was cut at a multiple
        // of its alignment: where that of a cache line is asked for, `T` has the size of a word and so
        // no larger alignment than that), and
        // has the bytes of `elements` values; `MaybeUninit` needs no initialisation.
        unsafe { core::slice::from_raw_parts_mut(table, elements) }
    }

    /// Cuts a table off and fills it.
    pub(crate) fn table<T>(&mut self, elements: u64, mut make: impl FnMut() -> T) -> &'m mut [T] {
        let table = self.room(elements);
        table.iter_mut().for_each(|element| write_one(element, &mut make));
        let table: *mut [MaybeUninit<T>] = table;
        // SAFETY: every element was written above; `MaybeUninit<T>` is laid out like `T`, and the
        // only other reference to them ended with the line above.
        unsafe { &mut *(table as *mut [T]) }
    }

    /// Cuts a table off that is as it is.
    ///
    /// # Safety
    /// What is left of the piece is initialised, and any bytes are a value of `T`.
    unsafe fn taken<T>(&mut self, elements: u64) -> &'m [T] {
        let table: *mut [MaybeUninit<T>] = self.room(elements);
        // SAFETY: the elements are initialised by contract; `MaybeUninit<T>` is laid out like `T`, and the
        // only other reference to them ended with the line above.
        unsafe { &*(table as *const [T]) }
    }
}

/// Writes one element. Out of line, so that what a large one takes of the stack while it is made is not kept
/// beside all that is called later.
#[inline(never)]
fn write_one<T>(element: &mut MaybeUninit<T>, make: &mut impl FnMut() -> T) {
    element.write(make());
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use core::sync::atomic::Ordering::Relaxed;
    use std::vec;
    use zonal::map::{MemoryMap, PhysAddr, Region};
    use zonal::plan::{Config, Draft};
    use zonal::platform::single::SingleThread;
    use zonal::preset::{ClusterFree, Zonal};
    use zonal::{Allocator, Order, Request};

    fn plan() -> Plan {
        let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 << 20)]).unwrap();
        Plan::new(map.sanitise().unwrap(), Config::new(2), |_, _, _| 1).unwrap()
    }

    /// Whatever the alignment of the piece, the bytes asked for are enough, and one less is
    /// refused.
    #[test]
    fn any_alignment_will_do() {
        let plan = plan();
        let wanted = piece_bytes::<SingleThread, ClusterFree>(&plan) as usize;
        let mut memory = vec![MaybeUninit::uninit(); wanted + 256];
        for skip in [0, 1, 3, 8, 64, 127, 255] {
            let piece = &mut memory[skip..skip + wanted];
            piece.fill(MaybeUninit::new(0xa5));
            let short = in_piece::<SingleThread, ClusterFree>(&plan, &mut piece[1..]);
            let error = PieceTooSmall { given: wanted - 1, wanted: wanted as u64 };
            assert_eq!(short.err(), Some(error));
            let storage = in_piece(&plan, piece).unwrap();
            let allocator = Allocator::<_, ClusterFree>::new(SingleThread, &plan, storage).unwrap();
            let huge = allocator.alloc(&Request::new(Order::HUGE)).unwrap();
            allocator.free(huge).unwrap();
        }
    }

    /// A zone whose tables are carved from it is smaller then, at these sizes so much that its batch is: the
    /// piece still has room for its clusters.
    #[test]
    fn a_piece_carved_from_a_zone_at_a_threshold() {
        for managed in [24_576, 45_056, 90_112] {
            for more in [0, 50, 110, 195, 380] {
                let mut draft = Draft::new();
                let memory = Region::usable(PhysAddr(16 << 20), (managed + more) << 12);
                draft.regions().add(memory).unwrap();
                draft.sanitise().unwrap();
                let plan = draft.plan(&Config::new(2), |_, _, _| 1).unwrap();
                assert_eq!(plan.zones().len(), 1);
                let bytes = piece_bytes::<SingleThread, ClusterFree>(plan);
                draft.carve(bytes, None, None).unwrap();
                let mut piece = vec![MaybeUninit::uninit(); bytes as usize];
                let storage = in_piece(draft.planned(), &mut piece).unwrap();
                let allocator =
                    Allocator::<_, ClusterFree>::new(SingleThread, draft.planned(), storage);
                assert!(allocator.unwrap().alloc(&Request::frame()).is_ok());
            }
        }
    }

    /// Of a zeroed piece only what the frames in use need is written.
    #[test]
    fn a_zeroed_piece_stays_zero_where_nothing_is_used() {
        let plan = plan();
        let memory = vec![0; piece_bytes::<SingleThread, Zonal>(&plan) as usize].leak();
        let storage = in_zeroed_piece(&plan, memory).unwrap();
        let states = storage.states;
        let allocator = Allocator::<_, Zonal>::new(SingleThread, &plan, storage).unwrap();
        assert!(allocator.alloc(&Request::frame()).is_ok());
        let used = states.iter().filter(|state| state.load(Relaxed) != 0).count();
        assert!(0 < used && used < states.len() / 8, "{used} of {}", states.len());
    }

    #[test]
    fn a_zeroed_piece_that_is_too_small_is_refused() {
        let plan = plan();
        let wanted = piece_bytes::<SingleThread, Zonal>(&plan);
        let memory = vec![0; wanted as usize - 1].leak();
        let error = in_zeroed_piece::<SingleThread, Zonal>(&plan, memory).err();
        assert_eq!(error, Some(PieceTooSmall { given: wanted as usize - 1, wanted }));
    }

    #[test]
    fn a_piece_may_be_used_again() {
        let plan = plan();
        let mut memory =
            vec![MaybeUninit::uninit(); piece_bytes::<SingleThread, Zonal>(&plan) as usize];
        for _ in 0..2 {
            let storage = in_piece(&plan, &mut memory).unwrap();
            let allocator = Allocator::<_, Zonal>::new(SingleThread, &plan, storage).unwrap();
            assert!(allocator.alloc(&Request::frame()).is_ok());
        }
    }
}

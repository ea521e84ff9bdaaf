//! Pages of address spaces that can be moved: which page of which space a frame is, and the move, when compaction
//! asks for it.

use super::KNOWN;
use super::space::AddressSpace;
use crate::machine::{Pc, cpu};
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use x86_64::VirtAddr;
use zonal::platform::Lock;
use zonal::{Immovable, Migration, Order, Pfn};
use zonal_kernel::irq_lock::IrqLock;

/// A word a frame: the number of its space plus 1, and of its page. 0: it is no page that can be moved. Memory
/// beyond does not move.
static OWNERS: [AtomicU64; KNOWN] = [const { AtomicU64::new(0) }; KNOWN];
/// Bits of a page's number.
const PAGE_BITS: u32 = 40;

/// A space whose pages can be moved, or null.
struct Space(*const AddressSpace);

// SAFETY: a reference that `with_space` has for as long as it stands here, behind a lock.
unsafe impl Send for Space {}

/// The spaces, each by the number of the processor that made it so. Held while a page of the space is moved.
static SPACES: [IrqLock<Space, Pc>; cpu::MOST] =
    [const { IrqLock::new(Space(ptr::null())) }; cpu::MOST];

/// How many there are.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Pages that were moved, and that were not.
pub(crate) static MOVED: AtomicU64 = AtomicU64::new(0);
pub(crate) static STAYED: AtomicU64 = AtomicU64::new(0);

fn owner(pfn: Pfn) -> Option<&'static AtomicU64> {
    OWNERS.get(usize::try_from(pfn.get()).ok()?)
}

/// Runs `f`; meanwhile the pages of `space` that [are noted](note) can be moved. One space a processor.
pub(crate) fn with_space<R>(space: &AddressSpace, f: impl FnOnce() -> R) -> R {
    let own = &SPACES[cpu::number().0 as usize];
    own.with(|place| *place = Space(space));
    COUNT.fetch_add(1, Relaxed);
    let result = f();
    COUNT.fetch_sub(1, Relaxed);
    own.with(|place| *place = Space(ptr::null()));
    result
}

/// Whether there are any.
pub(crate) fn are_there() -> bool {
    COUNT.load(Relaxed) != 0
}

/// A frame is a page of the space of this number. With the space's tables locked.
pub(crate) fn note(pfn: Pfn, space: u32, address: VirtAddr) {
    if let Some(owner) = owner(pfn) {
        // Release: with the acquire in `migrate`; what is there is looked at again under the locks.
        owner.store(u64::from(space + 1) << PAGE_BITS | address.as_u64() >> 12, Release);
    }
}

/// It is no more. With the space's tables locked.
pub(crate) fn forget(pfn: Pfn) {
    if let Some(owner) = owner(pfn) {
        owner.store(0, Relaxed);
    }
}

/// Moves a page, if it is one that can be: see [`Machine::migrate`](zonal_kernel::Machine::migrate).
///
/// # Errors
/// [`Immovable`].
pub(crate) fn migrate(page: &Migration) -> Result<(), Immovable> {
    let moved = try_migrate(page);
    if moved.is_ok() { &MOVED } else { &STAYED }.fetch_add(1, Relaxed);
    moved
}

fn try_migrate(page: &Migration) -> Result<(), Immovable> {
    let word = owner(page.from).map_or(0, |owner| owner.load(Acquire));
    let number = (word >> PAGE_BITS) as usize;
    if number == 0 || page.order != Order::ZERO || owner(page.to).is_none() {
        return Err(Immovable);
    }
    let address = VirtAddr::new((word & ((1 << PAGE_BITS) - 1)) << 12);
    SPACES[number - 1].with(|space| {
        // SAFETY: null, or a space that `with_space` keeps there; it takes it away with this lock held.
        let space = unsafe { space.0.as_ref() }.ok_or(Immovable)?;
        space.move_page(address, page.from, page.to)
    })
}

//! Frames that several address spaces have, read-only, until one of them writes: how many beyond one.

use super::KNOWN;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU8, AtomicU64};
use zonal::Pfn;

/// Pages that were copied because they were written, and pages that were not, because no other had them.
pub(crate) static COPIED: AtomicU64 = AtomicU64::new(0);
pub(crate) static KEPT: AtomicU64 = AtomicU64::new(0);

/// Memory beyond is not shared.
static OTHERS: [AtomicU8; KNOWN] = [const { AtomicU8::new(0) }; KNOWN];

fn of(pfn: Pfn) -> Option<&'static AtomicU8> {
    OTHERS.get(usize::try_from(pfn.get()).ok()?)
}

/// One more has it; `false` if it cannot be shared.
pub(crate) fn share(pfn: Pfn) -> bool {
    // Relaxed: who shares it has it.
    of(pfn).is_some_and(|others| {
        others.fetch_update(Relaxed, Relaxed, |others| others.checked_add(1)).is_ok()
    })
}

/// Whether others have it.
pub(crate) fn is_shared(pfn: Pfn) -> bool {
    // Acquire: pairs with the release in `give_up`: what another did with it comes before what follows.
    of(pfn).is_some_and(|others| others.load(Acquire) != 0)
}

/// One has it no more; whether that was the last, who has to free it.
pub(crate) fn give_up(pfn: Pfn) -> bool {
    // Acquire and release: who frees it comes after all who had it.
    of(pfn).is_none_or(|others| {
        others.fetch_update(AcqRel, Acquire, |others| others.checked_sub(1)).is_err()
    })
}

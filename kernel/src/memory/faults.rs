//! Page faults: a page of zero bytes is put where there is none.

use super::alloc;
use super::space::{AddressSpace, END, START, Unmapped};
use crate::machine::cpu;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use x86_64::VirtAddr;
use zonal::{MigrateType, Order, Request};

/// Faults served with a page of 4 KiB, and with one of 2 MiB.
pub(crate) static SMALL: AtomicU64 = AtomicU64::new(0);
pub(crate) static HUGE: AtomicU64 = AtomicU64::new(0);

/// Cannot be served: no space, no memory, or an address that is in none.
#[derive(Debug)]
pub(crate) struct Unserved;

/// Of a fault's error code: there is a page; it was written.
const PRESENT: u64 = 1;
const WRITE: u64 = 2;

/// Serves a fault of this processor.
pub(crate) fn serve(address: VirtAddr, error: u64) -> Result<(), Unserved> {
    let space = cpu::own().space.load(Acquire);
    // SAFETY: null, or the space that this processor is in, which lives until it has left it.
    let space: &AddressSpace = unsafe { space.as_ref() }.ok_or(Unserved)?;
    if !(START..END).contains(&address.as_u64()) {
        return Err(Unserved);
    }
    match error & (PRESENT | WRITE) {
        PRESENT => return Err(Unserved),
        0 | WRITE => {}
        _ => return space.write(address).map_err(|_| Unserved),
    }
    let page = Request::frame().migrate(MigrateType::Movable).zero();
    if space.is_huge()
        && let Ok(block) = alloc(&page.with_order(Order::HUGE).no_wait())
    {
        match space.map(address.align_down(2_u64 << 20), block) {
            Ok(()) => {
                HUGE.fetch_add(1, Relaxed);
                return Ok(());
            }
            // Smaller pages are there.
            Err(Unmapped::Taken) => {}
            Err(Unmapped::NoMemory) => return Err(Unserved),
        }
    }
    let block = alloc(&page).map_err(|_| Unserved)?;
    match space.map(address, block) {
        Ok(()) => {
            SMALL.fetch_add(1, Relaxed);
            Ok(())
        }
        // Another processor was faster.
        Err(Unmapped::Taken) => Ok(()),
        Err(Unmapped::NoMemory) => Err(Unserved),
    }
}

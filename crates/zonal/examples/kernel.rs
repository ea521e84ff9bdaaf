//! The shortest kernel: no heap, tables in one piece of memory, one CPU.
//!
//! The README shows this program, and a test compares the two.
//!
//! ```text
//! cargo run -p zonal --example kernel
//! ```

use core::mem::MaybeUninit;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::platform::single::SingleThread;
use zonal::policy::{Policy, Split};
use zonal::{Allocator, Order, Request, preset::Zonal};

/// `piece`: memory for the tables, which a kernel carves from its boot map.
fn kernel(piece: &mut [MaybeUninit<u8>]) -> Result<(), Box<dyn core::error::Error>> {
    let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 << 20)])?.sanitise()?;
    let plan = Plan::new(map, Config::new(1), <Zonal as Policy>::Split::instances)?;
    let tables = zonal_tables::in_piece(&plan, piece)?;
    let allocator = Allocator::<_, Zonal>::new(SingleThread, &plan, tables)?;

    let (pfn, order) = allocator.alloc(&Request::new(Order::HUGE))?.into_raw();
    allocator.free_raw(pfn, order)?;
    assert!(allocator.free_raw(pfn, order).is_err(), "a double free is refused");
    Ok(())
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    kernel(&mut vec![MaybeUninit::uninit(); 1 << 20])
}

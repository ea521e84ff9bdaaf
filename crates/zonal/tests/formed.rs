//! Blocks that form while compaction works, with a host that frees frames while it moves a page.

use std::cell::RefCell;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::platform::Platform;
use zonal::platform::single::SingleThread;
use zonal::policy::{Policy, Split};
use zonal::preset::Linux416;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{
    Allocator, CompactOutcome, CpuId, Host, Immovable, MigrateType, Migration, Order, Pfn, Request,
};
use zonal_tables::HeapTables;

/// Moves one page, and frees what it has into the CPU's cache meanwhile.
struct Frees {
    page: Pfn,
    held: RefCell<Vec<Pfn>>,
}

impl Platform for Frees {
    type Byte = <SingleThread as Platform>::Byte;
    type Half = <SingleThread as Platform>::Half;
    type Word = <SingleThread as Platform>::Word;
    type Lock<T: Send> = <SingleThread as Platform>::Lock<T>;
    type Slot<T: Send> = <SingleThread as Platform>::Slot<T>;

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
}

impl Host for Frees {
    fn can_migrate(&self) -> bool {
        true
    }

    fn migrate<S: Policy>(
        &self,
        allocator: &Allocator<'_, Self, S>,
        page: &Migration,
    ) -> Result<(), Immovable> {
        if page.from != self.page {
            return Err(Immovable);
        }
        for pfn in self.held.take() {
            allocator.free_raw(pfn, Order::ZERO).expect("it is held");
        }
        Ok(())
    }
}

/// The last pageblock of a block of four is evacuated, and what was cached in it comes back: the block that
/// forms begins three pageblocks below.
#[test]
fn a_block_forms_below_the_pageblock() {
    let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0x1000 << 12), 2048 << 12)]);
    let none = WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() };
    let config = Config {
        pageblock_order: Order::new(3).unwrap(),
        watermarks: none,
        pcp_batch: Some(7),
        ..Config::new(1)
    };
    let split = <Linux416 as Policy>::Split::instances;
    let plan = Plan::new(map.unwrap().sanitise().unwrap(), config, split).unwrap();
    let mut tables = HeapTables::new(&plan).unwrap();
    let host = Frees { page: Pfn::new(0x1038), held: RefCell::default() };
    let allocator = Allocator::<_, Linux416>::new(host, &plan, tables.storage()).unwrap();
    let request = Request::frame().migrate(MigrateType::Movable);
    let all: Vec<_> = std::iter::from_fn(|| allocator.alloc_raw(&request).ok()).collect();
    for pfn in all {
        match pfn.get() {
            0x1039..0x1040 => allocator.platform().held.borrow_mut().push(pfn),
            0x1038 => {}
            // The rest of the block, and places to move the page to.
            0x1020..0x1038 => allocator.free_raw(pfn, Order::ZERO).unwrap(),
            above @ 0x1400.. if above % 2 == 1 => allocator.free_raw(pfn, Order::ZERO).unwrap(),
            _ => {}
        }
    }
    let wanted = Order::new(5).unwrap();
    assert_eq!(allocator.compact_in_background(wanted), CompactOutcome::Success);
    assert_eq!(allocator.alloc_raw(&request.with_order(wanted)), Ok(Pfn::new(0x1020)));
}

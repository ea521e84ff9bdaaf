//! What a request that may not wait looks at before it is refused, with 1 to 256 configured CPUs: counted in
//! accesses to shared words and in slots, on one CPU and one zone. It must not grow with the number of CPUs.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::single::CellLock;
use zonal::platform::{AtomicByte, AtomicHalf, AtomicWord, Lock, Platform};
use zonal::policy::{Policy, Split};
use zonal::preset::Zonal;
use zonal::{Allocator, CpuId, Host, MigrateType, Order, Request, ZoneId, ZoneType};
use zonal_tables::HeapTables;

thread_local! {
    /// Accesses to words, and slots that were tried or entered.
    static SEEN: [Cell<u64>; 2] = const { [Cell::new(0), Cell::new(0)] };
}

fn see(what: usize) {
    SEEN.with(|seen| seen[what].set(seen[what].get() + 1));
}

macro_rules! counted {
    ($name:ident($atomic:ty, $value:ty): $trait:ident { $($more:ident),* }, $exchanges:tt) => {
        struct $name($atomic);
        impl $trait for $name {
            fn new(value: $value) -> Self {
                Self(<$atomic>::new(value))
            }
            fn load(&self, order: Ordering) -> $value {
                see(0);
                self.0.load(order)
            }
            fn store(&self, value: $value, order: Ordering) {
                see(0);
                self.0.store(value, order);
            }
            $(fn $more(&self, value: $value, order: Ordering) -> $value {
                see(0);
                self.0.$more(value, order)
            })*
            counted!(@exchange $exchanges, $value);
        }
    };
    (@exchange true, $value:ty) => {
        fn compare_exchange(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            see(0);
            self.0.compare_exchange(current, new, success, failure)
        }
    };
    (@exchange false, $value:ty) => {};
}
counted!(Byte(AtomicU8, u8): AtomicByte { swap }, true);
counted!(Half(AtomicU32, u32): AtomicHalf {}, false);
counted!(Word(AtomicU64, u64): AtomicWord { swap, fetch_add, fetch_or, fetch_and }, true);

/// A slot's lock.
struct Seen<T>(CellLock<T>);

impl<T> Lock<T> for Seen<T> {
    fn new(value: T) -> Self {
        Self(CellLock::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        see(1);
        self.0.with(f)
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        see(1);
        self.0.try_with(f)
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

struct Counting;

impl Platform for Counting {
    type Byte = Byte;
    type Half = Half;
    type Word = Word;
    type Lock<T: Send> = CellLock<T>;
    type Slot<T: Send> = SharedSlot<T, Seen<Guarded<T>>>;

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
}

impl Host for Counting {}

/// What one refusal saw: words, slots.
fn refusal(allocator: &Allocator<'_, Counting, Zonal>, request: &Request) -> (u64, u64) {
    let now = || SEEN.with(|seen| (seen[0].get(), seen[1].get()));
    let before = now();
    assert!(allocator.alloc(request).is_err());
    let after = now();
    (after.0 - before.0, after.1 - before.1)
}

/// Refusals on a full machine of 256 MiB in one zone: of a frame, of an urgent one, of a huge page.
fn refusals(cpus: u32) -> [(u64, u64); 4] {
    let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(16 << 20), 256 << 20)]).unwrap();
    let map = map.sanitise().unwrap();
    let plan = Plan::new(map, Config::new(cpus), <Zonal as Policy>::Split::instances).unwrap();
    let mut tables = HeapTables::new(&plan).unwrap();
    let allocator = Allocator::<_, Zonal>::new(Counting, &plan, tables.storage()).unwrap();
    assert_eq!(allocator.zone_count(), 1);
    let all = Request::frame().migrate(MigrateType::Movable).zone_limit(ZoneType::Movable);
    while allocator.alloc(&all.atomic()).is_ok() {}
    assert!(allocator.zone_info(ZoneId(0)).unwrap().free < 4096);
    let huge = Request::new(Order::HUGE);
    // One that may wait looks at all CPUs: what is counted here does grow.
    assert!(refusal(&allocator, &Request::frame()).1 >= u64::from(cpus));
    [all.atomic(), Request::frame().atomic(), all.no_wait(), huge.atomic()].map(|request| {
        // Once: what the first one gives back is not there again.
        let _ = refusal(&allocator, &request);
        refusal(&allocator, &request)
    })
}

/// The most words that it looks at in a zone; and slots: its own at each step of the walk, and four others.
const WORDS: u64 = 200;
const SLOTS: u64 = 9;

#[test]
fn a_refusal_does_not_grow_with_the_number_of_cpus() {
    let found = [1, 8, 64, 256].map(|cpus| (cpus, refusals(cpus)));
    for (cpus, refusals) in &found {
        println!("{cpus:>3} CPUs: {refusals:?} (words, slots)");
    }
    for (cpus, refusals) in &found {
        for (words, slots) in refusals {
            assert!(
                *words <= WORDS && *slots <= SLOTS,
                "{cpus} CPUs: {words} words, {slots} slots"
            );
        }
    }
    let [_, eight, many, most] = found;
    for other in [many, most] {
        for ((words, slots), (now, tried)) in eight.1.iter().zip(other.1) {
            let grew = now > words + words / 10 || tried > *slots;
            assert!(!grew, "{} CPUs: {now} words, {tried} slots; {words}, {slots} with 8", other.0);
        }
    }
}

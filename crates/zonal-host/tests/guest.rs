//! An arena as guest memory.
#![cfg(all(feature = "vm-memory", not(loom)))]

use vm_memory::{
    Address, Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, GuestRegionCollection,
    MemoryRegionAddress,
};
use zonal::policy::Sound;
use zonal::preset::{Linux416, Zonal};
use zonal::{FreeError, Order, Request, ZoneId};
use zonal_host::Arena;
use zonal_host::guest::{GuestRegion, Why};
use zonal_host::region::{GiveBack, RegionError};

const MIB: usize = 1 << 20;
const START: GuestAddress = GuestAddress(4 << 30);

fn open<S: Sound>(bytes: usize) -> Arena<S> {
    Arena::builder().preset::<S>().bytes(bytes).cpus(1).owners(0).open().unwrap()
}

fn region<S: Sound>() -> GuestRegion<S> {
    GuestRegion::new(open(16 * MIB), START).unwrap()
}

#[test]
fn two_regions_are_one_memory() {
    let low = GuestRegion::new(open::<Zonal>(8 * MIB), GuestAddress(0)).unwrap();
    let memory = GuestRegionCollection::from_regions(vec![low, region()]).unwrap();
    assert_eq!(memory.last_addr(), START.unchecked_add(16 * MIB as u64 - 1));
    memory.write_slice(b"across", START.unchecked_add(8 * MIB as u64 - 3)).unwrap();
    let mut read = [0; 6];
    memory.read_slice(&mut read, START.unchecked_add(8 * MIB as u64 - 3)).unwrap();
    assert_eq!(&read, b"across");
    assert!(memory.write_obj(1_u8, GuestAddress(8 * MIB as u64)).is_err(), "the hole");
    assert!(memory.write_obj(1_u16, memory.last_addr()).is_err(), "the end");
}

#[test]
fn slices_end_with_the_region() {
    let region = region::<Zonal>();
    let len = region.len();
    for (offset, count) in [(0, 16 * MIB + 1), (len, 1), (len + 1, 0), (1, usize::MAX)] {
        assert!(region.get_slice(MemoryRegionAddress(offset), count).is_err(), "{offset} {count}");
    }
    assert_eq!(region.get_slice(MemoryRegionAddress(len), 0).unwrap().len(), 0);
    assert_eq!(region.as_volatile_slice().unwrap().len(), 16 * MIB);
    let host = region.get_host_address(MemoryRegionAddress(5)).unwrap();
    let base = region.get_host_address(MemoryRegionAddress(0)).unwrap();
    assert_eq!(host.addr() - base.addr(), 5);
    assert!(region.get_host_address(MemoryRegionAddress(len)).is_err());
}

#[test]
fn an_arena_in_use_is_refused() {
    let arena = open::<Zonal>(8 * MIB);
    let (pfn, order) = arena.alloc(&Request::new(Order::HUGE)).unwrap().into_raw();
    let error = GuestRegion::new(arena, START).unwrap_err();
    assert_eq!(error.why, Why::InUse { frames: 512 });
    assert_eq!(error.to_string(), "512 frames of the arena are in use");
    let arena = error.arena;
    // SAFETY: the numbers are a page's that was given up for them.
    drop(unsafe { arena.page_from_raw(pfn, order) });
    assert!(GuestRegion::new(arena, START).is_ok());
}

#[test]
fn an_address_that_cannot_be_gives_the_arena_back() {
    let mut arena = open::<Zonal>(8 * MIB);
    for start in [1, u64::MAX, u64::MAX - 4095, (8 * MIB as u64 - 4096).wrapping_neg()] {
        let error = GuestRegion::new(arena, GuestAddress(start)).unwrap_err();
        assert!(error.to_string().contains("8388608 bytes cannot start at"), "{error}");
        arena = error.arena;
    }
    let end = GuestAddress((8 * MIB as u64).wrapping_neg());
    assert!(GuestRegion::new(arena, end).is_ok());
}

fn free_memory_goes_back<S: Sound>() {
    let region = region::<S>();
    let order = Order::HUGE;
    let blocks: Vec<_> = (0..6).map(|_| region.alloc(order).unwrap()).collect();
    for (&block, stamp) in blocks.iter().zip(1_u8..) {
        let offset = block.unchecked_offset_from(START);
        assert!(block >= START && offset.is_multiple_of(order.bytes() as u64));
        region.write_slice(&vec![stamp; order.bytes()], MemoryRegionAddress(offset)).unwrap();
    }
    assert_eq!(region.visit_free(usize::MAX, |_, _| panic!("nothing was freed")), 0);
    for &block in &blocks[..4] {
        let inside = region.free(block.unchecked_add(1), order).unwrap_err();
        assert!(matches!(inside, FreeError::Foreign { .. }), "{inside}");
        region.free(block, order).unwrap();
    }
    assert!(region.free(blocks[0], order).is_err(), "twice");
    assert!(region.free(GuestAddress(0), order).is_err(), "not there");

    let mut seen = Vec::new();
    let count = region.visit_free(usize::MAX, |start, len| {
        seen.push(start.raw_value()..start.raw_value() + len);
    });
    assert_eq!(count, seen.len());
    let is_seen = |block: &GuestAddress| seen.iter().any(|part| part.contains(&block.raw_value()));
    assert_eq!(
        blocks.iter().map(is_seen).collect::<Vec<_>>(),
        [true, true, true, true, false, false]
    );
    assert!(region.visit_free(1, |_, _| ()) == 1);
}

#[test]
fn free_memory_goes_back_linux416() {
    free_memory_goes_back::<Linux416>();
}

#[test]
fn free_memory_goes_back_zonal() {
    free_memory_goes_back::<Zonal>();
}

#[test]
fn what_is_given_back_or_discarded_is_gone() {
    let region = region::<Zonal>();
    let block = region.alloc(Order::HUGE).unwrap();
    let offset = MemoryRegionAddress(block.unchecked_offset_from(START));
    region.write_obj(7_u64, offset).unwrap();
    region.free(block, Order::HUGE).unwrap();
    assert_eq!(region.give_back(usize::MAX, GiveBack::Now).unwrap().bytes, 4096);
    assert_eq!(region.read_obj::<u64>(offset).unwrap(), 0);

    // What the guest reports is allocated, for the arena.
    let block = region.alloc(Order::HUGE).unwrap();
    let offset = MemoryRegionAddress(block.unchecked_offset_from(START));
    let next = offset.unchecked_add(4096);
    region.write_obj(8_u64, offset).unwrap();
    region.write_obj(9_u64, next).unwrap();
    region.discard(block, 4096).unwrap();
    assert_eq!(region.read_obj::<u64>(offset).unwrap(), 0);
    assert_eq!(region.read_obj::<u64>(next).unwrap(), 9);
    let below = GuestAddress(START.raw_value() - 4096);
    for (start, bytes) in [(START, 1), (START, 17 << 20), (below, 4096), (START, u64::MAX)] {
        let error = region.discard(start, bytes).unwrap_err();
        assert!(matches!(error, RegionError::BadPart { .. }), "{error}");
    }
    region.free(block, Order::HUGE).unwrap();
    let arena = region.into_arena();
    arena.drain();
    let zone = arena.zone_info(ZoneId(0)).unwrap();
    assert_eq!(zone.free, zone.managed);
}

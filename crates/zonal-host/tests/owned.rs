//! Pages that keep their arena open, and CPUs that have an owner.
#![cfg(not(loom))]

use std::sync::Arc;
use std::thread;
use zonal::platform::OwnError;
use zonal::policy::Sound;
use zonal::preset::{Linux416, Zonal};
use zonal::{Order, Request, ZoneId};
use zonal_host::{Arena, OwnedPage};

const MIB: usize = 1 << 20;

fn open<S: Sound>() -> Arc<Arena<S>> {
    Arc::new(Arena::builder().preset::<S>().bytes(16 * MIB).cpus(1).owners(0).open().unwrap())
}

fn allocated<S: Sound>(arena: &Arena<S>) -> u64 {
    arena.drain();
    let zone = arena.zone_info(ZoneId(0)).unwrap();
    zone.managed - zone.free
}

fn is_static_and_send<T: Send + Sync + 'static>(_: &T) {}

fn owned<S: Sound + 'static>()
where
    Arena<S>: Send + Sync,
{
    let arena = open::<S>();
    let mut page: OwnedPage<S> = arena.alloc_owned(&Request::new(Order::HUGE).zero()).unwrap();
    is_static_and_send(&page);
    assert_eq!((page.len(), allocated(&arena)), (2 * MIB, 512));
    assert!(page.iter().all(|&byte| byte == 0));
    page.as_mut()[4096..].fill(3);
    let page = thread::spawn(move || page).join().unwrap();
    assert_eq!((page.as_ref()[4095], page[4096]), (0, 3));
    assert_eq!(arena.address_of(page.pfn()).unwrap().as_ptr().cast_const(), page.as_ptr());
    drop(page);
    assert_eq!(allocated(&arena), 0);
}

#[test]
fn owned_by_linux416() {
    owned::<Linux416>();
}

#[test]
fn owned_by_zonal() {
    owned::<Zonal>();
}

#[test]
fn the_last_page_closes_the_arena() {
    let arena = open::<Zonal>();
    let weak = Arc::downgrade(&arena);
    let pages: Vec<_> = (0..3).map(|_| arena.alloc_owned(&Request::frame()).unwrap()).collect();
    drop(arena);
    for page in pages {
        assert!(weak.upgrade().is_some());
        thread::spawn(move || drop(page)).join().unwrap();
    }
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_page_becomes_owned_by_its_own_arena_only() {
    let (arena, other) = (open::<Zonal>(), open::<Zonal>());
    let page = arena.alloc(&Request::frame()).unwrap();
    let pfn = page.pfn();
    let page = page.into_owned(&other).unwrap_err();
    let page = page.into_owned(&arena).unwrap();
    assert_eq!((page.pfn(), page.order()), (pfn, Order::ZERO));
    assert!(Arc::ptr_eq(page.arena(), &arena));
    assert_eq!((allocated(&arena), allocated(&other)), (1, 0));

    let (held, pfn, order) = page.into_raw();
    assert_eq!((Arc::strong_count(&arena), allocated(&arena)), (2, 1));
    // SAFETY: the numbers are a page's that was given up for them.
    drop(unsafe { held.page_from_raw(pfn, order) });
    assert_eq!(allocated(&arena), 0);
}

#[test]
fn handles_are_counted() {
    let arena = Arena::builder().bytes(4 * MIB).owners(2).open().unwrap();
    let handles = [arena.handle(), arena.handle()];
    if let Err(error @ OwnError::Unsupported(_)) = &handles[0] {
        return println!("not on this machine: {error}");
    }
    assert_eq!(arena.handle().unwrap_err(), OwnError::Taken);
    let (shared, _) = arena.cpus();
    assert!(handles.iter().flatten().map(|handle| handle.cpu().0).eq([shared, shared + 1]));
    drop(handles);
    assert!(arena.handle().is_ok());
    let arena = Arena::builder().bytes(4 * MIB).owners(0).open().unwrap();
    assert_eq!(arena.handle().unwrap_err(), OwnError::NoSuchCpu);
}

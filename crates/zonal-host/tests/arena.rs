//! Arenas on real memory: who gets a page owns it, whatever happens around it.

use proptest::prelude::*;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use zonal::error::FreeError;
use zonal::policy::Sound;
use zonal::preset::{Linux416, Zonal};
use zonal::units::FRAME_SIZE;
use zonal::{MigrateType, Order, Pfn, Request, ZoneId};
use zonal_host::region::GiveBack;
use zonal_host::{Arena, Handle, Page};

const MIB: usize = 1 << 20;

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

fn movable(order: Order) -> Request {
    Request::new(order).migrate(MigrateType::Movable)
}

/// A small generator, so that runs repeat (SplitMix64's step and mix).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A mark in the first and last word of every frame of the page, for this owner and moment.
fn mark<S: Sound>(page: &mut Page<'_, S>, stamp: u64) {
    for (at, frame) in page.chunks_mut(FRAME_SIZE).enumerate() {
        let word = (stamp ^ at as u64).to_le_bytes();
        frame[..8].copy_from_slice(&word);
        frame[FRAME_SIZE - 8..].copy_from_slice(&word);
    }
}

fn check<S: Sound>(page: &Page<'_, S>, stamp: u64) {
    for (at, frame) in page.chunks(FRAME_SIZE).enumerate() {
        let word = (stamp ^ at as u64).to_le_bytes();
        assert_eq!(frame[..8], word, "{page:?}: another holder wrote frame {at}");
        assert_eq!(frame[FRAME_SIZE - 8..], word, "{page:?}: another holder wrote frame {at}");
    }
}

/// Everything came back.
fn all_free<S: Sound>(arena: &Arena<S>) {
    arena.drain();
    let zone = arena.zone_info(ZoneId(0)).unwrap();
    assert_eq!((zone.free, zone.cached), (zone.managed, 0));
    assert_eq!(zone.managed, (arena.len() / FRAME_SIZE) as u64);
}

/// How a thread gets at the arena.
enum Way<'a, S: Sound> {
    Shared(&'a Arena<S>),
    Owned(Handle<'a, S>),
}

impl<'a, S: Sound> Way<'a, S> {
    fn alloc(&mut self, request: &Request) -> Option<Page<'a, S>> {
        match self {
            Self::Shared(arena) => arena.alloc(request).ok(),
            Self::Owned(handle) => handle.alloc(request).ok(),
        }
    }
    fn free(&mut self, page: Page<'a, S>) {
        match self {
            Self::Shared(_) => drop(page),
            Self::Owned(handle) => handle.free(page),
        }
    }
}

/// Allocates and frees at random, holding up to about a quarter of the arena.
fn churn<S: Sound>(mut way: Way<'_, S>, seed: u64, steps: u32) -> u32 {
    let mut random = Random(seed);
    let mut held: Vec<(Page<'_, S>, u64)> = Vec::new();
    let (mut frames, mut served) = (0, 0);
    for _ in 0..steps {
        if frames < 2048 && random.below(2) == 0 {
            let order = order(if random.below(4) > 0 { 0 } else { random.below(11) as u8 });
            let types = [MigrateType::Movable, MigrateType::Unmovable, MigrateType::Reclaimable];
            let request = Request::new(order).migrate(types[random.below(3) as usize]);
            if let Some(mut page) = way.alloc(&request) {
                let stamp = random.next();
                mark(&mut page, stamp);
                frames += order.frames();
                served += 1;
                held.push((page, stamp));
            }
        } else if !held.is_empty() {
            let at = random.below(held.len() as u64) as usize;
            let (page, stamp) = held.swap_remove(at);
            check(&page, stamp);
            frames -= page.order().frames();
            way.free(page);
        }
    }
    held.iter().for_each(|(page, stamp)| check(page, *stamp));
    served
}

fn hammer<S: Sound>() {
    let arena = Arena::builder().bytes(32 * MIB).cpus(2).owners(2).preset::<S>().open().unwrap();
    let start = Barrier::new(4);
    let supported = arena.handle().is_ok();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (arena, start) = (&arena, &start);
            scope.spawn(move || {
                start.wait();
                let owned = supported && thread % 2 == 0;
                let way =
                    if owned { Way::Owned(arena.handle().unwrap()) } else { Way::Shared(arena) };
                assert!(churn(way, thread, 20_000) > 5_000);
            });
        }
    });
    all_free(&arena);
}

#[test]
fn no_other_thread_writes_a_page_zonal() {
    hammer::<Zonal>();
}

#[test]
fn no_other_thread_writes_a_page_linux416() {
    hammer::<Linux416>();
}

/// Pages change threads, and are freed where they were not allocated.
#[test]
fn pages_move_between_threads() {
    let arena = Arena::builder().bytes(16 * MIB).open().unwrap();
    let (send, receive) = mpsc::sync_channel::<(Page<'_>, u64)>(64);
    thread::scope(|scope| {
        let arena = &arena;
        scope.spawn(move || {
            let mut way = arena.handle().map_or(Way::Shared(arena), Way::Owned);
            for stamp in 0..50_000 {
                // Never more than the channel holds are out, so there is always one.
                let mut page = way.alloc(&Request::frame()).expect("a frame is free");
                mark(&mut page, stamp);
                send.send((page, stamp)).unwrap();
            }
        });
        let mut way = arena.handle().map_or(Way::Shared(arena), Way::Owned);
        for (at, (page, stamp)) in receive.iter().enumerate() {
            check(&page, stamp);
            if at % 2 == 0 { way.free(page) } else { drop(page) }
        }
    });
    all_free(&arena);
}

#[test]
fn an_arena_hands_out_its_last_frame() {
    let arena = Arena::builder().bytes(8 * MIB + 3 * FRAME_SIZE).open().unwrap();
    let mut pages = Vec::new();
    let error = loop {
        match arena.alloc(&Request::frame()) {
            Ok(page) => pages.push(page),
            Err(error) => break error,
        }
    };
    assert_eq!(pages.len(), 2 * 1024 + 3);
    let explained = arena.explain(&Request::frame());
    assert_eq!(explained.free_frames(), 0);
    assert!(explained.to_string().contains("0 frames free"), "{explained}");
    assert!(error.to_string().contains("no free block of order 0"), "{error}");
    let mut seen: Vec<Pfn> = pages.iter().map(Page::pfn).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), pages.len());
    assert!(seen[0] == arena.first() && pages.iter().all(|page| page.len() == FRAME_SIZE));
    drop(pages);
    all_free(&arena);
}

#[test]
fn frame_numbers_are_addresses() {
    let arena = Arena::builder().bytes(8 * MIB).open().unwrap();
    let mut page = arena.alloc(&movable(order(3))).unwrap();
    let pfn = page.pfn();
    assert_eq!(page.as_mut_ptr().addr() as u64, pfn.address());
    assert_eq!(arena.address_of(pfn).unwrap().as_ptr(), page.as_mut_ptr());
    let first = arena.first().get();
    for outside in [first - 1, first + 2048, 0, 1 << 52, u64::MAX, first + (1 << 52)] {
        assert_eq!(arena.address_of(Pfn::new(outside)), None, "{outside:#x}");
    }
}

#[test]
fn raw_blocks_and_wrong_frees() {
    let arena = Arena::builder().bytes(8 * MIB).open().unwrap();
    let pfn = arena.alloc_raw(&movable(order(2))).unwrap();
    let counts = || {
        let zone = arena.zone_info(ZoneId(0)).unwrap();
        (zone.free, zone.cached, zone.blocks)
    };
    let before = counts();
    // SAFETY: what is freed is this test's, without references into it; or refused.
    let free = |pfn, order| unsafe { arena.free_raw(pfn, order) };
    let foreign = Pfn::new(arena.first().get() - 1);
    let inner = Pfn::new(pfn.get() + 1);
    let given = Order::ZERO;
    for (error, result) in [
        (FreeError::Foreign { pfn: foreign }, free(foreign, given)),
        (FreeError::WrongOrder { pfn, given, allocated: order(2) }, free(pfn, given)),
        (FreeError::Inner { pfn: inner, head: pfn, order: order(2) }, free(inner, given)),
    ] {
        assert_eq!(result, Err(error));
    }
    assert_eq!(counts(), before, "nothing changed");
    free(pfn, order(2)).unwrap();
    assert_eq!(free(pfn, order(2)), Err(FreeError::DoubleFree { pfn, order: order(2) }));

    let mut frames = [Pfn::new(0); 700];
    arena.alloc_bulk(&Request::frame(), &mut frames).unwrap();
    // SAFETY: as above.
    let freed = unsafe { arena.free_bulk(&frames) };
    assert_eq!((freed.freed, freed.refused), (700, 0));

    let mut page = arena.alloc(&Request::frame()).unwrap();
    mark(&mut page, 5);
    let (pfn, order) = page.into_raw();
    // SAFETY: the block was given up just now.
    check(&unsafe { arena.page_from_raw(pfn, order) }, 5);
    all_free(&arena);
}

#[test]
fn zeroed_pages_are_zero() {
    let arena = Arena::builder().bytes(4 * MIB).open().unwrap();
    for order in [Order::ZERO, order(4), Order::MAX] {
        for request in [movable(order), movable(order).zero()] {
            let mut page = arena.alloc(&request).unwrap();
            assert!(!request.is_zero() || page.iter().all(|&byte| byte == 0), "order {order}");
            page.fill(0xff);
        }
    }
}

#[test]
fn a_page_goes_back_where_it_is_from() {
    let [here, there] = [(); 2].map(|()| Arena::builder().bytes(4 * MIB).open().unwrap());
    let Ok(mut handle) = here.handle() else { return };
    handle.free(there.alloc(&Request::frame()).unwrap());
    let pfn = there.alloc_raw(&Request::frame()).unwrap();
    // SAFETY: the block is ours, and not looked into.
    let refused = unsafe { handle.free_raw(pfn, Order::ZERO) };
    assert_eq!(refused, Err(FreeError::Foreign { pfn }));
    // SAFETY: as above.
    unsafe { there.free_raw(pfn, Order::ZERO) }.unwrap();
    drop(handle);
    all_free(&here);
    all_free(&there);
}

/// Bytes of the arena in memory.
fn resident<S: Sound>(arena: &Arena<S>) -> usize {
    let mut map = vec![0_u8; arena.len() / FRAME_SIZE];
    let base = arena.address_of(arena.first()).unwrap();
    // SAFETY: the arena is mapped, and `map` has a byte for each frame.
    let done = unsafe { libc::mincore(base.as_ptr().cast(), arena.len(), map.as_mut_ptr()) };
    assert_eq!(done, 0);
    map.iter().filter(|&&byte| byte & 1 == 1).count() * FRAME_SIZE
}

/// `leaves`: how many blocks are not looked at again once they were given back.
fn give_back_what_is_idle<S: Sound>(leaves: usize) {
    let arena = Arena::builder().bytes(64 * MIB).preset::<S>().open().unwrap();
    let mut pages: Vec<_> =
        (0..32 * MIB / FRAME_SIZE).map(|_| arena.alloc(&movable(Order::ZERO)).unwrap()).collect();
    pages.iter_mut().for_each(|page| mark(page, 1));
    assert_eq!(resident(&arena), 32 * MIB);
    // One frame of each of the last largest blocks stays: a half of each is free in one piece.
    pages.sort_unstable_by_key(Page::pfn);
    let kept: Vec<_> = pages.drain(6 * 1024..).step_by(1024).collect();
    assert_eq!(kept.len(), 2);
    drop(pages);

    // Six whole blocks and two halves. Of the other eight blocks a cache or two may have
    // touched the first, in the table only.
    let first = arena.give_back(2, GiveBack::Now).unwrap();
    assert_eq!(first.examined, 2);
    let rest = arena.give_back(usize::MAX, GiveBack::Now).unwrap();
    assert_eq!(first.bytes + rest.bytes, 6 * 4 * MIB + 2 * 2 * MIB);
    assert_eq!(resident(&arena), 4 * MIB, "the halves with a frame in use");
    let again = arena.give_back(usize::MAX, GiveBack::Now).unwrap();
    assert_eq!(again.bytes, 0);
    assert!((8..=10).contains(&(rest.examined + leaves.min(2))), "{rest:?}");
    assert!((8..=10).contains(&(again.examined + leaves)), "{again:?}");
    kept.iter().for_each(|page| check(page, 1));
    drop(kept);
    all_free(&arena);
}

#[test]
fn idle_blocks_are_given_back_zonal() {
    give_back_what_is_idle::<Zonal>(6);
}

#[test]
fn idle_blocks_are_given_back_linux416() {
    give_back_what_is_idle::<Linux416>(0);
}

/// After `WhenNeeded` the kernel may take a frame at any moment, but not from under a page.
#[test]
fn a_page_keeps_what_it_shows() {
    let arena = Arena::builder().bytes(4 * MIB).open().unwrap();
    let page_out = |start: *mut u8| {
        // SAFETY: moves pages out of memory, if it can; contents stay, or go where they may.
        unsafe { libc::madvise(start.cast(), Order::MAX.bytes(), libc::MADV_PAGEOUT) == 0 }
    };
    let mut taken = 0;
    for settled in [false, true] {
        arena.alloc(&movable(Order::MAX)).unwrap().fill(9);
        let given = arena.give_back(1, GiveBack::WhenNeeded).unwrap();
        assert_eq!(given.bytes, 4 * MIB);
        if settled {
            let page = arena.alloc(&movable(Order::MAX)).unwrap();
            let before = page.to_vec();
            assert!(!page_out(page.as_ptr().cast_mut()) || before[..] == page[..]);
        } else {
            let pfn = arena.alloc_raw(&movable(Order::MAX)).unwrap();
            let start = arena.address_of(pfn).unwrap();
            if page_out(start.as_ptr()) {
                taken = arena.len() - resident(&arena);
            }
            // SAFETY: ours, and not looked into.
            unsafe { arena.free_raw(pfn, Order::MAX) }.unwrap();
        }
    }
    println!("of 4 MiB that was not settled the kernel took {taken} bytes");
}

/// Giving back holds blocks for a moment; requests wait instead of failing.
#[test]
fn no_request_fails_while_blocks_are_given_back() {
    let arena = Arena::builder().bytes(16 * MIB).open().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = arena.give_back(usize::MAX, GiveBack::Now).unwrap();
            }
        });
        // Fills three of four blocks, which were free as a whole, again and again.
        for _ in 0..100 {
            let mut held = Vec::new();
            for stamp in 0..3000 {
                let mut page = match arena.alloc(&movable(Order::ZERO)) {
                    Ok(page) => page,
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        panic!("with {} of 4096 frames in use: {error}", held.len());
                    }
                };
                mark(&mut page, stamp);
                held.push((page, stamp));
            }
            held.iter().for_each(|(page, stamp)| check(page, *stamp));
        }
        stop.store(true, Ordering::Relaxed);
    });
    all_free(&arena);
}

#[test]
fn arenas_and_pages_are_for_threads() {
    fn both<T: Send + Sync>() {}
    fn send<T: Send>() {}
    both::<Arena<Zonal>>();
    both::<Arena<Linux416>>();
    both::<Page<'_, Zonal>>();
    send::<Handle<'_, Zonal>>();
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(u8, bool),
    Free(usize),
    Drain,
    GiveBack(usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..11_u8, any::<bool>()).prop_map(|(order, zero)| Step::Alloc(order, zero)),
        7 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::Drain),
        1 => (0..6_usize, any::<bool>()).prop_map(|(blocks, now)| Step::GiveBack(blocks, now)),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever is done to the rest of the arena, pages keep their contents.
    #[test]
    fn pages_keep_their_contents(steps in steps()) {
        let arena = Arena::builder().bytes(16 * MIB).open().unwrap();
        let mut held: Vec<(Page<'_>, u64)> = Vec::new();
        for (stamp, step) in steps.into_iter().enumerate() {
            match step {
                Step::Alloc(n, zero) => {
                    let request = movable(order(n));
                    let request = if zero { request.zero() } else { request };
                    let Ok(mut page) = arena.alloc(&request) else { continue };
                    prop_assert!(!zero || page.iter().all(|&byte| byte == 0));
                    mark(&mut page, stamp as u64);
                    held.push((page, stamp as u64));
                }
                Step::Free(at) if !held.is_empty() => {
                    let (page, stamp) = held.swap_remove(at % held.len());
                    check(&page, stamp);
                }
                Step::Free(_) => {}
                Step::Drain => drop(arena.drain()),
                Step::GiveBack(blocks, now) => {
                    let how = if now { GiveBack::Now } else { GiveBack::WhenNeeded };
                    prop_assert!(arena.give_back(blocks, how).unwrap().examined <= blocks);
                }
            }
            held.iter().for_each(|(page, stamp)| check(page, *stamp));
        }
        drop(held);
        all_free(&arena);
    }
}

/// A visitor that panics, at each call, and one that asks the arena for memory.
#[test]
fn visited_blocks_are_free_again_whatever_the_visitor_does() {
    let arena = Arena::builder().bytes(64 * MIB).cpus(1).owners(0).open().unwrap();
    let pages: Vec<_> = (0..16).map(|_| arena.alloc(&Request::new(Order::MAX)).unwrap()).collect();
    drop(pages);
    let free = || {
        let zone = arena.zone_info(ZoneId(0)).unwrap();
        (zone.free, zone.cached)
    };
    let all = (16384, 0);
    for at in 0..16 {
        let mut calls = 0;
        let visit = |_, _| {
            calls += 1;
            assert!(calls <= at, "it gives up");
        };
        let visited = panic::catch_unwind(AssertUnwindSafe(|| arena.visit_free(usize::MAX, visit)));
        assert!(visited.is_err());
        assert_eq!(free(), all, "call {at}");
    }
    let mut refused = 0;
    let count = arena.visit_free(usize::MAX, |pfn, order| {
        let again = arena.alloc(&Request::new(order));
        assert!(again.is_err() || again.is_ok_and(|page| page.pfn() != pfn));
        let given = arena.give_back(1, GiveBack::Now).unwrap();
        refused += usize::from(given.examined == 0);
    });
    assert_eq!((count, refused, free()), (16, 1, all));
    assert_eq!(arena.visit_free(3, |_, order| assert_eq!(order, Order::MAX)), 3);
}

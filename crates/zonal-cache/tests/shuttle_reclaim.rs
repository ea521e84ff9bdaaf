//! Reclaim that comes from inside: frames, store and policy have pages go in every call that the cache makes to them, with
//! the policy's lock and the file's gates held and pages half written, as an allocator would in which heap, stores
//! and pages are. Two threads, room for fewer pages than they use.
//!
//! Bound: [`SCHEDULES`] random schedules of two threads with [`STEPS`] steps each; 6 s with four times as many. The canary lowers the bound
//! in the callback instead, as [`Pager`](zonal_host::Pager)s that know nothing else would: a deadlock.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p zonal-cache --test shuttle_reclaim
//! ```
#![cfg(shuttle)]

mod shuttled;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use shuttle::thread;
use shuttled::{Heap, PAGE, SEED, ShuttleHost, Shuttled, call_back, explore, set_hook};
use std::rc::Rc;
use zonal::platform::AtomicByte;
use zonal_cache::cache::Options;
use zonal_cache::evict::{Evict, Told, Verdict};
use zonal_cache::lru::{LruLock, PerZone, Whole};
use zonal_cache::table::SlotId;
use zonal_cache::{CacheError, FaultyStore, File, MemoryStore, PageCache, S3Fifo, Setup, TwoLists};

const BOUND: usize = 20;
const PAGES: u64 = 30;
const STEPS: usize = 12;
/// As many as find what is planted; four times as many by `cargo xtask shuttle --wide`.
const SCHEDULES: usize = if option_env!("ZONAL_SHUTTLE_WIDE").is_some() { 500 } else { 125 };

/// A policy that needs memory whenever it is called, with the cache's lock held.
struct Hungry<E>(E);

impl<E: Evict> Evict for Hungry<E> {
    const NAME: &'static str = E::NAME;
    const MOST: u8 = E::MOST;

    fn new(slots: usize) -> Self {
        Self(E::new(slots))
    }
    fn insert(&mut self, id: SlotId, key: u64) {
        call_back();
        self.0.insert(id, key);
    }
    fn remove(&mut self, id: SlotId) {
        call_back();
        self.0.remove(id);
    }
    fn replace(&mut self, old: SlotId, new: SlotId) {
        call_back();
        self.0.replace(old, new);
    }
    fn scan_told<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
        told: &mut impl FnMut(Told, SlotId),
    ) -> bool {
        call_back();
        self.0.scan_told(mark, take, told)
    }
}

/// Steps of a thread that alone writes every other page. A page has its version in all bytes.
fn work<S: Setup>(file: &File<S>, own: u64) -> Vec<u8> {
    let mut versions = vec![0; PAGES as usize];
    let mut bytes = vec![0; PAGE];
    let at = |index: u64| index * PAGE as u64;
    for _ in 0..STEPS {
        let index = thread_rng().gen_range(0..PAGES);
        let mine = index & !1 | own;
        match thread_rng().gen_range(0..10) {
            0..4 => match file.write_at(&[versions[mine as usize] + 1; PAGE], at(mine)) {
                Ok(_) => versions[mine as usize] += 1,
                Err(error) => assert!(matches!(error, CacheError::NoRoom { .. }), "{error}"),
            },
            4..8 => {
                if file.read_at(&mut bytes, at(mine)).is_ok() {
                    assert!(bytes.iter().all(|&it| it == versions[mine as usize]), "page {mine}");
                }
            }
            8 => file.sync().expect("the store is well"),
            _ => {
                file.invalidate(at(index)..at(index + 4));
            }
        }
    }
    versions
}

fn model<E: Evict, L: LruLock>(hook: fn(&PageCache<Shuttled<Hungry<E>, true, L>>)) {
    let options = Options { pages: BOUND, window: 4, ..Options::default() };
    let cache =
        PageCache::with_parts(ShuttleHost::new(), Heap::new(BOUND), options).expect("a cache");
    let memory = std::sync::Arc::new(MemoryStore::from(vec![0; PAGES as usize * PAGE]));
    let store = FaultyStore::new(memory.clone(), |_| {
        call_back();
        None
    });
    let file = cache.open(store).expect("a file");
    let inside = cache.clone();
    set_hook(Some(Rc::new(move || hook(&inside))));
    let other = file.clone();
    let beside = thread::spawn(move || work(&other, 1));
    let versions = [work(&file, 0), beside.join().unwrap()];
    file.sync().expect("the store is well");
    set_hook(None);
    let durable = memory.durable();
    for (index, page) in durable.chunks(PAGE).enumerate() {
        assert!(page.iter().all(|&it| it == versions[index % 2][index]), "page {index} is lost");
    }
}

#[test]
fn pages_go_from_inside_two_lists() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        model::<TwoLists, Whole>(|cache| {
            cache.reclaim(2);
        });
    });
}

#[test]
fn pages_go_from_inside_s3_fifo() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        model::<S3Fifo, Whole>(|cache| {
            cache.reclaim(2);
        });
    });
}

#[test]
fn pages_go_from_inside_lists_by_zone() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        model::<TwoLists, PerZone<3>>(|cache| {
            cache.reclaim(2);
        });
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn canary_a_callback_that_lowers_the_bound_waits_for_itself() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        model::<TwoLists, Whole>(|cache| {
            let _ = cache.set_bound(BOUND - 4);
            let _ = cache.set_bound(BOUND);
        });
    });
}

/// Pages that wait in batches of two CPUs, leave, come again in slots that the other batch has an entry of, and are reclaimed
/// meanwhile: each that is there is on a list or waits, and nothing else is on a list.
fn batches<E: Evict, L: LruLock>() {
    let options = Options { pages: BOUND, window: 0, ..Options::default() };
    let cache = PageCache::<Shuttled<E, true, L>>::with_parts(
        ShuttleHost::new(),
        Heap::new(BOUND),
        options,
    );
    let cache = cache.expect("a cache");
    let file = cache.open(MemoryStore::from(vec![0; PAGES as usize * PAGE])).expect("a file");
    let works = |cache: PageCache<_>, file: File<_>| {
        for _ in 0..2 * STEPS {
            let at = thread_rng().gen_range(0..PAGES) * PAGE as u64;
            match thread_rng().gen_range(0..4) {
                0 => drop(cache.reclaim(thread_rng().gen_range(1..6))),
                1 => drop(file.invalidate(at..at + 4 * PAGE as u64)),
                _ => drop(file.read_at(&mut [0; PAGE], at)),
            }
        }
    };
    let others = [0; 2].map(|_| {
        let (cache, file) = (cache.clone(), file.clone());
        thread::spawn(move || works(cache, file))
    });
    works(cache.clone(), file.clone());
    others.into_iter().for_each(|it| it.join().unwrap());
    let listed: usize = cache.lists().iter().map(|list| list.file).sum();
    assert_eq!(listed + cache.waiting(), cache.stats().used, "pages on no list, or on two");
}

#[test]
fn what_is_reclaimed_from_a_batch_is_on_no_list() {
    explore(RandomScheduler::new_from_seed(SEED, 10 * SCHEDULES), batches::<TwoLists, PerZone<3>>);
}

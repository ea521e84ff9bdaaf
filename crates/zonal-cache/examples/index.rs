//! What a lookup costs by the cache's own index, by a concurrent map (`papaya`), and by maps behind 64
//! locks: pages are found, counted in and counted out again. Times are of the CPU, medians over rounds in which
//! the three take turns.
//!
//! ```text
//! cargo run --release -p zonal-cache --example index
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use std::sync::{Barrier, RwLock};
use std::thread;
use zonal::Pfn;
use zonal_cache::Threads;
use zonal_cache::table::{Key, Table};

const PAGES: u64 = 16_384;
const ROUNDS: usize = 15;
const LOOKS: u64 = 200_000;
const SHARDS: usize = 64;

/// The key's own hash, so that all three spend the same on it.
#[derive(Default)]
struct Own(u64);

impl Hasher for Own {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, word: u64) {
        self.0 = Key { file: self.0, index: word }.hash();
    }
}

type Build = BuildHasherDefault<Own>;
/// A map behind a lock.
type Locked = RwLock<HashMap<(u64, u64), u32, Build>>;

/// A line for the count of a page.
#[repr(align(64))]
struct Count(AtomicU64);

impl Count {
    fn in_and_out(&self) {
        black_box(self.0.fetch_add(1, Acquire));
        black_box(self.0.fetch_sub(1, AcqRel));
    }
}

struct Maps {
    host: Threads,
    table: Table<Threads>,
    papaya: papaya::HashMap<(u64, u64), u32, Build>,
    locked: Vec<Locked>,
    counts: Vec<Count>,
}

impl Maps {
    fn new() -> Self {
        let (table, free) = Table::new(PAGES as usize, 0);
        let host = Threads::new();
        let papaya = papaya::HashMap::with_capacity_and_hasher(PAGES as usize, Build::default());
        let locked: Vec<Locked> = (0..SHARDS).map(|_| RwLock::default()).collect();
        for (mut slot, index) in free.into_iter().zip(0..PAGES) {
            let key = Key { file: 1, index };
            table.set_frame(&mut slot, Pfn::new(index));
            let writer = table.insert(slot, key).expect("it is new");
            let _ = table.finish(&host, writer, false);
            papaya.pin().insert((1, index), index as u32);
            let shard = key.hash() as usize % SHARDS;
            locked[shard].write().expect("whole").insert((1, index), index as u32);
        }
        let counts = (0..PAGES).map(|_| Count(AtomicU64::new(0))).collect();
        Self { host, table, papaya, locked, counts }
    }

    fn own(&self, index: u64) {
        let reader = self.table.enter(&self.host, Key { file: 1, index }).expect("it is there");
        black_box(self.table.frame_of(&reader));
        assert!(self.table.leave(reader).is_none());
    }

    fn papaya(&self, index: u64) {
        let map = self.papaya.pin();
        let slot = *map.get(&(1, index)).expect("it is there");
        self.counts[slot as usize].in_and_out();
    }

    fn locked(&self, index: u64) {
        let key = Key { file: 1, index };
        let map = self.locked[key.hash() as usize % SHARDS].read().expect("whole");
        let slot = *map.get(&(1, index)).expect("it is there");
        self.counts[slot as usize].in_and_out();
    }
}

fn cpu_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of CPU a lookup, among pages up to a number.
fn time(threads: usize, among: u64, look: impl Fn(u64) + Sync) -> f64 {
    let together = Barrier::new(threads);
    let one = |number: u64| {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64 + number;
        together.wait();
        let start = cpu_time();
        for _ in 0..LOOKS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            look((state >> 33) % among);
        }
        (cpu_time() - start) as f64 / LOOKS as f64
    };
    thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..threads as u64).map(|at| scope.spawn(move || one(at))).collect();
        all.into_iter().map(|it| it.join().expect("a thread")).sum::<f64>() / threads as f64
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let maps = Maps::new();
    println!("found, counted in and out; ns of CPU (medians of {ROUNDS})\n");
    println!("pages   threads       own    papaya   64 locks");
    for threads in [1, 2] {
        for among in [16, PAGES] {
            let mut times = [const { Vec::new() }; 3];
            for _ in 0..ROUNDS {
                times[0].push(time(threads, among, |index| maps.own(index)));
                times[1].push(time(threads, among, |index| maps.papaya(index)));
                times[2].push(time(threads, among, |index| maps.locked(index)));
            }
            let [own, papaya, locked] = times.each_mut().map(|all| median(all));
            println!("{among:<8}{threads:>7}{own:>10.1}{papaya:>10.1}{locked:>11.1}");
        }
    }
}

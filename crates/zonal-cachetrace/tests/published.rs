//! Hits on a trace that others published theirs of. It is not part of this repository: libCacheSim (GPL 3) has it
//! as `data/cloudPhysicsIO.oracleGeneral.bin`, and the misses that its tests expect in `test/test_evictionAlgo.c`.
//!
//! ```text
//! ZONAL_CLOUDPHYSICS=cloudPhysicsIO.oracleGeneral.bin cargo test --release -p zonal-cachetrace --test published -- --ignored
//! ```

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use zonal_cachetrace::read::load;
use zonal_cachetrace::simulate::{Policy, Trace, hits};
use zonal_cachetrace::trace::Format;
use zonal_cli::bar::Bar;

const STEP: u64 = 128 << 20;
const SIZES: usize = 8;

/// Misses with 128 MiB, 256 MiB and so on of 113,872 requests.
const LRU: [u64; SIZES] = [93374, 89783, 83572, 81722, 72494, 72104, 71972, 71704];
const SIEVE: [u64; SIZES] = [91699, 86720, 78578, 76707, 69945, 66221, 64445, 64376];
const BELADY: [u64; SIZES] = [79256, 70724, 65481, 61594, 59645, 57599, 50873, 48974];
const S3_FIFO: [u64; SIZES] = [90117, 80915, 75060, 72191, 69815, 65542, 60799, 56045];

/// Of what the small queue is a tenth, and as much as the main one are ghosts.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Parts {
    /// Of the bytes, as in the reference.
    Bytes,
    /// Of the objects, as in the cache, where all are pages.
    Objects,
}

/// What is in a queue.
#[derive(Default)]
struct Queue {
    pages: VecDeque<u32>,
    bytes: u64,
}

impl Queue {
    fn push(&mut self, page: u32, bytes: u64) {
        self.pages.push_back(page);
        self.bytes += bytes;
    }

    fn pop(&mut self, size: impl Fn(u32) -> u64) -> Option<u32> {
        let page = self.pages.pop_front()?;
        self.bytes -= size(page);
        Some(page)
    }
}

/// S3-FIFO on plain queues; until a page went, what comes is in the small one only until that is full.
fn plain_s3_fifo(trace: Trace<'_>, room: u64, parts: Parts) -> u64 {
    let size = |page: u32| trace.sizes.get(page as usize).copied().unwrap_or(1);
    let [mut small, mut main, mut ghosts]: [Queue; 3] = Default::default();
    let mut uses: HashMap<u32, u8> = HashMap::new();
    let (mut hits, mut went) = (0, false);
    for &page in trace.accesses {
        if let Some(count) = uses.get_mut(&page) {
            *count = count.saturating_add(1);
            hits += 1;
            continue;
        }
        let all = small.pages.len() + main.pages.len();
        while parts == Parts::Objects && ghosts.pages.len() > all * 9 / 10 {
            ghosts.pop(size);
        }
        let back = ghosts.pages.iter().position(|&ghost| ghost == page);
        if let Some(at) = back {
            ghosts.pages.remove(at);
            ghosts.bytes -= size(page);
        }
        while small.bytes + main.bytes + size(page) > room {
            went = true;
            let of_main = match parts {
                Parts::Bytes => main.bytes > room - room / 10,
                Parts::Objects => small.pages.len() * 10 < small.pages.len() + main.pages.len(),
            };
            if of_main || small.pages.is_empty() {
                let Some(old) = main.pop(size) else { break };
                match uses[&old] {
                    0 => drop(uses.remove(&old)),
                    count => {
                        uses.insert(old, count.min(3) - 1);
                        main.push(old, size(old));
                    }
                }
                continue;
            }
            let Some(old) = small.pop(size) else { break };
            if uses[&old] >= 2 {
                uses.insert(old, 0);
                main.push(old, size(old));
                continue;
            }
            uses.remove(&old);
            ghosts.push(old, size(old));
            while parts == Parts::Bytes && ghosts.bytes > room * 9 / 10 {
                ghosts.pop(size);
            }
        }
        uses.insert(page, 0);
        let full = match parts {
            Parts::Bytes => small.bytes >= room / 10,
            Parts::Objects => small.pages.len() >= trace.unique.div_ceil(10),
        };
        let into = if back.is_some() || !went && full { &mut main } else { &mut small };
        into.push(page, size(page));
    }
    hits
}

#[test]
#[ignore = "needs a trace that is elsewhere"]
fn as_many_hits_as_the_reference_says() {
    let Some(path) = std::env::var_os("ZONAL_CLOUDPHYSICS").map(PathBuf::from) else {
        panic!("ZONAL_CLOUDPHYSICS is to be the path of cloudPhysicsIO.oracleGeneral.bin");
    };
    let bar = |all| Bar::new(all, true);
    let loaded = load(&path, Some(Format::OracleGeneral), None, bar).expect("the trace");
    let trace = loaded.accesses.trace();
    let all = trace.accesses.len() as u64;
    assert_eq!((all, trace.unique), (113_872, 48_974), "another trace");
    let of = |hits: u64| hits as f64 * 100.0 / all as f64;
    for (at, room) in (1..=SIZES as u64).map(|step| step * STEP).enumerate() {
        for (policy, misses) in [(Policy::Lru, LRU), (Policy::Sieve, SIEVE), (Policy::Opt, BELADY)]
        {
            assert_eq!(all - hits(policy, trace, room), misses[at], "{policy} in {room}");
        }
        assert_eq!(all - plain_s3_fifo(trace, room, Parts::Bytes), S3_FIFO[at], "{room}");
        let want = of(plain_s3_fifo(trace, room, Parts::Objects));
        let got = of(hits(Policy::S3Fifo, trace, room));
        assert!((got - want).abs() < 0.1, "{got} and {want} in {room}");
    }
    // Objects of one size, as pages are.
    let pages = Trace { sizes: &[], ..trace };
    for slots in (1..=6).map(|part| trace.unique as u64 >> part) {
        let want = of(plain_s3_fifo(pages, slots, Parts::Bytes));
        let got = of(hits(Policy::S3Fifo, pages, slots));
        println!("{slots} pages: {got:.2} % and {want:.2} %");
        assert!((got - want).abs() < 0.2, "{got} and {want} in {slots}");
    }
}

//! Truncating: pages freed by list, in the batches of the lists that a kernel has, and one by one.
//!
//! ```text
//! cargo run --release -p zonal-cache --example truncate
//! ```

use std::error::Error;
use std::time::Instant;
use zonal_cache::lru::{LruLock, PerNode, Whole};
use zonal_cache::{Cache, CacheFile, MemoryStore, TwoLists};

const PAGE: u64 = 4096;
/// Pages of a file: 64 MiB.
const PAGES: u64 = 16_384;
const ROUNDS: usize = 15;

/// Pages a second that leave by `cut`, and how often a list's lock was held for each 1000.
fn speed<L: LruLock>(cut: impl Fn(&CacheFile<TwoLists, L>)) -> Result<(f64, f64), Box<dyn Error>> {
    let cache = Cache::<TwoLists, L>::builder().memory(80 << 20).open()?;
    let file = cache.open(MemoryStore::from(vec![1; (PAGES * PAGE) as usize]))?;
    file.read_at(&mut vec![0; (PAGES * PAGE) as usize], 0)?;
    let holds = || cache.lists().iter().map(|list| list.holds).sum::<u64>();
    let (before, start) = (holds(), Instant::now());
    cut(&file);
    let took = start.elapsed().as_secs_f64();
    assert_eq!((cache.stats().used, file.len()), (0, 0));
    let held = holds() - before;
    Ok((PAGES as f64 / took, held as f64 * 1000.0 / PAGES as f64))
}

fn one_by_one(file: &CacheFile<TwoLists>) {
    (0..PAGES).rev().for_each(|page| file.truncate(page * PAGE).expect("memory does it"));
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut speeds = [const { Vec::new() }; 3];
    let mut held = [0.0; 3];
    for _ in 0..ROUNDS {
        let round = [
            speed::<Whole>(|file| file.truncate(0).expect("memory does it"))?,
            speed::<PerNode<14>>(|file| file.truncate(0).expect("memory does it"))?,
            speed::<Whole>(one_by_one)?,
        ];
        for (at, (speed, holds)) in round.into_iter().enumerate() {
            speeds[at].push(speed);
            held[at] = holds;
        }
    }
    println!("{PAGES} clean pages of a file; medians of {ROUNDS}\n");
    println!("                 million pages/s   of one by one   holds of a list for 1000 pages");
    let slowest = speeds[2].clone();
    for (at, name) in ["one list", "lists of 14", "one by one"].into_iter().enumerate() {
        let mut ratios: Vec<f64> = speeds[at].iter().zip(&slowest).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        speeds[at].sort_by(f64::total_cmp);
        let (speed, ratio) = (speeds[at][ROUNDS / 2] / 1e6, ratios[ROUNDS / 2]);
        println!("{name:<16}{speed:>16.2}{ratio:>16.2}{:>33.1}", held[at]);
    }
    Ok(())
}

//! What a hit costs beside two general caches that hold the same pages, `quick_cache` and `foyer` (its cache in memory), as
//! values that are counted: 4 KiB copied, and looked at without a copy. Times are of the CPU; ratios are medians over rounds
//! in which all take turns.
//!
//! ```text
//! cargo run --release -p zonal-cache --example peers
//! ```

mod timed;

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use timed::{Look, PAGE, PAGES, ROUNDS, median, time};
use zonal_cache::{Cache, CacheFile, MemoryStore, S3Fifo};

/// A file and a page of it, as the caches know it.
type Key = (u64, u64);
type Bytes = Arc<[u8; PAGE]>;
type Quick = quick_cache::sync::Cache<Key, Bytes>;
type Foyer = foyer_memory::Cache<Key, Bytes>;

/// One of them, and whether a page is copied.
struct Own(CacheFile<S3Fifo>, bool);
struct OfQuick<'a>(&'a Quick, bool);
struct OfFoyer<'a>(&'a Foyer, bool);

/// A byte of a page, or of a copy.
fn seen(page: &[u8], copies: bool, buffer: &mut [u8]) -> u8 {
    if !copies {
        return black_box(page)[7];
    }
    buffer.copy_from_slice(page);
    black_box(&*buffer)[7]
}

impl Look for Own {
    fn look(&self, index: u64, buffer: &mut [u8]) -> u8 {
        let at = index * PAGE as u64;
        if self.1 {
            assert_eq!(self.0.read_at(buffer, at).expect("it is there"), PAGE);
            return black_box(&*buffer)[7];
        }
        let pinned = self.0.pin(at..at + PAGE as u64).expect("it is there");
        seen(pinned.as_slice().expect("one page"), false, buffer)
    }
}

impl Look for OfQuick<'_> {
    fn look(&self, index: u64, buffer: &mut [u8]) -> u8 {
        seen(&*self.0.get(&(1, index)).expect("it is there"), self.1, buffer)
    }
}

impl Look for OfFoyer<'_> {
    fn look(&self, index: u64, buffer: &mut [u8]) -> u8 {
        seen(&**self.0.get(&(1, index)).expect("it is there").value(), self.1, buffer)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let bytes = timed::bytes();
    let cache = Cache::<S3Fifo>::builder().memory(80 << 20).open()?;
    let file = cache.open(MemoryStore::from(bytes.clone()))?;
    file.read_at(&mut vec![0; bytes.len()], 0)?;
    // Room for twice as much, as both are split into parts that may differ in size.
    let room = 2 * PAGES as usize;
    let quick = Quick::new(room);
    let s3_fifo = foyer_memory::S3FifoConfig::default();
    let foyer: Foyer = foyer_memory::CacheBuilder::new(room).with_eviction_config(s3_fifo).build();
    for (index, page) in (0..).zip(bytes.chunks_exact(PAGE)) {
        quick.insert((1, index), Arc::new(page.try_into()?));
        foyer.insert((1, index), Arc::new(page.try_into()?));
    }
    println!(
        "4 KiB in memory; ns of CPU a look (medians of {ROUNDS}), how much faster than the peers\n"
    );
    println!("pages   threads  what       own     quick     foyer   quick x   foyer x");
    for threads in [1, 2] {
        for (name, among) in [("16", 16), ("64 MiB", PAGES)] {
            for (what, copies) in [("copy", true), ("look", false)] {
                let own: Vec<Own> = (0..threads).map(|_| Own(file.clone(), copies)).collect();
                let (of_quick, of_foyer) = (OfQuick(&quick, copies), OfFoyer(&foyer, copies));
                let looks: [Vec<&dyn Look>; 3] = [
                    own.iter().map(|it| it as &dyn Look).collect(),
                    vec![&of_quick; threads],
                    vec![&of_foyer; threads],
                ];
                let (mut times, mut ratios) =
                    ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
                for _ in 0..ROUNDS {
                    let round = looks.each_ref().map(|look| time(look, among));
                    times.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
                    (0..2).for_each(|at| ratios[at].push(round[at + 1] / round[0]));
                }
                let [own, quick, foyer] = times.each_mut().map(|all| median(all));
                let [by_quick, by_foyer] = ratios.each_mut().map(|all| median(all));
                print!("{name:<8}{threads:>7}  {what}{own:>10.0}{quick:>10.0}{foyer:>10.0}");
                println!("{by_quick:>10.1}{by_foyer:>10.1}");
            }
        }
    }
    Ok(())
}

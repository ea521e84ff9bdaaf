//! What a checkpoint takes: pages here and there in a file are changed, and synced. One write after the other, and with a
//! ring, on which several are on their way.
//!
//! ```text
//! cargo run --release -p zonal-cache --example checkpoint
//! ```

use std::error::Error;
use std::fs::File;
use std::time::Instant;
use zonal_cache::{Cache, FileStore, Ring, S3Fifo};

/// Bytes of the file.
const LEN: usize = 64 << 20;
const PAGE: usize = 4096;
/// Pages that are changed in a round.
const PAGES: usize = 2048;
const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir_in(".")?;
    let path = directory.path().join("file");
    std::fs::write(&path, vec![1; LEN])?;
    File::open(&path)?.sync_all()?;
    let ring = Ring::new(64).ok();
    if ring.is_none() {
        println!("there is no io_uring here: both are without");
    }
    let stores = [None, ring];
    let mut times = [const { Vec::new() }; 2];
    for round in 0..ROUNDS {
        for (ring, times) in stores.iter().zip(&mut times) {
            // As a database does: it writes at its checkpoints, and not for a limit.
            let cache = Cache::<S3Fifo>::builder().memory(2 * LEN).dirty_percent(90).open()?;
            let file = cache.open(FileStore::open(&path)?.with_ring(ring.clone()))?;
            for page in 0..PAGES {
                // Every eighth page, in another order: no two are neighbours.
                let at = (page * 7919 % PAGES) * (LEN / PAGES);
                file.write_at(&[round as u8; PAGE], at as u64)?;
            }
            let begin = Instant::now();
            file.sync()?;
            times.push(begin.elapsed().as_secs_f64());
            assert_eq!(cache.stats().writes, PAGES as u64);
        }
    }
    let [one, several] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2] * 1e3
    });
    println!("{PAGES} pages here and there, ms for a sync, medians of {ROUNDS} rounds in turns");
    println!("one after the other {one:.0}, on a ring {several:.0}: {:.1} times", one / several);
    Ok(())
}

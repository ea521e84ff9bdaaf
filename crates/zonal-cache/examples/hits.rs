//! What a hit costs: 4 KiB from memory by `read_at`, by `pin`, and by `pread` of the same file from the
//! kernel's cache; and a bare copy of the same pages, which is what no cache can do without. Times are of the CPU, so that
//! other programs count for less; ratios are medians over rounds in which the four take turns, by one thread and by two.
//!
//! ```text
//! cargo run --release -p zonal-cache --example hits
//! ```

mod timed;

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use timed::{Look, PAGE, PAGES, ROUNDS, median, time};
use zonal_cache::{Cache, CacheFile, FileStore, S3Fifo};

struct Pread(File);
struct ReadAt(CacheFile<S3Fifo>);
struct Pin(CacheFile<S3Fifo>);
/// Where the pages are, which are pinned.
struct Copy<'a>(&'a [&'a [u8]]);

impl Look for Copy<'_> {
    fn look(&self, index: u64, buffer: &mut [u8]) -> u8 {
        buffer.copy_from_slice(self.0[index as usize]);
        black_box(&*buffer)[7]
    }
}

impl Look for Pread {
    fn look(&self, index: u64, buffer: &mut [u8]) -> u8 {
        self.0.read_exact_at(buffer, index * PAGE as u64).expect("it is there");
        black_box(&*buffer)[7]
    }
}

impl Look for ReadAt {
    fn look(&self, index: u64, buffer: &mut [u8]) -> u8 {
        let got = self.0.read_at(buffer, index * PAGE as u64).expect("it is there");
        assert_eq!(got, PAGE);
        black_box(&*buffer)[7]
    }
}

impl Look for Pin {
    fn look(&self, index: u64, _: &mut [u8]) -> u8 {
        let at = index * PAGE as u64;
        let pinned = self.0.pin(at..at + PAGE as u64).expect("it is there");
        black_box(pinned.as_slice().expect("one page"))[7]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("file");
    let bytes = timed::bytes();
    std::fs::write(&path, &bytes)?;
    let cache = Cache::<S3Fifo>::builder().memory(80 << 20).open()?;
    let file = cache.open(FileStore::open(&path)?)?;
    let mut all = vec![0; bytes.len()];
    assert_eq!(file.read_at(&mut all, 0)?, bytes.len());
    let kernel = File::open(&path)?;
    kernel.read_exact_at(&mut all, 0)?;

    let pinned = file.pin(0..PAGES * PAGE as u64)?;
    let pieces: Vec<&[u8]> = pinned.pieces().flat_map(|piece| piece.chunks(PAGE)).collect();
    println!("4 KiB in memory; ns of CPU a look (medians of {ROUNDS}), ratios to pread\n");
    println!("pages   threads     pread   read_at       pin      copy   read_at x   pin x  copy x");
    let mut gains = Vec::new();
    for (name, among) in [("16", 16), ("1024", 1024), ("64 MiB", PAGES)] {
        let rounds: Vec<[Round; 2]> = (0..ROUNDS)
            .map(|_| [1, 2].map(|threads| round(&kernel, &file, &pieces, threads, among)))
            .collect();
        for (at, threads) in [1, 2].into_iter().enumerate() {
            let times = over(&rounds, |round, which| round[at][which]);
            let ratios = over(&rounds, |round, which| round[at][0] / round[at][which]);
            let [pread, read, pin, copy] = times;
            print!("{name:<8}{threads:>7}{pread:>10.0}{read:>10.0}{pin:>10.0}{copy:>10.0}");
            println!("{:>12.1}{:>8.1}{:>8.1}", ratios[1], ratios[2], ratios[3]);
        }
        gains.push((name, over(&rounds, |round, which| 2.0 * round[0][which] / round[1][which])));
    }
    println!("\ntwo threads against one in the same round (2.0 is twice as much)");
    for (name, [pread, read, pin, copy]) in gains {
        println!("{name:<15}{pread:>10.2}{read:>10.2}{pin:>10.2}{copy:>10.2}");
    }
    assert_eq!(cache.stats().read, PAGES, "all were hits");
    Ok(())
}

/// What a look takes by `pread`, `read_at`, `pin` and a copy, one after the other.
type Round = [f64; 4];

fn round(
    kernel: &File,
    file: &CacheFile<S3Fifo>,
    pieces: &[&[u8]],
    threads: usize,
    among: u64,
) -> Round {
    let preads: Vec<Pread> =
        (0..threads).map(|_| Pread(kernel.try_clone().expect("a descriptor more"))).collect();
    let reads: Vec<ReadAt> = (0..threads).map(|_| ReadAt(file.clone())).collect();
    let pins: Vec<Pin> = (0..threads).map(|_| Pin(file.clone())).collect();
    [
        time(&preads.iter().map(|it| it as &dyn Look).collect::<Vec<_>>(), among),
        time(&reads.iter().map(|it| it as &dyn Look).collect::<Vec<_>>(), among),
        time(&pins.iter().map(|it| it as &dyn Look).collect::<Vec<_>>(), among),
        time(&vec![&Copy(pieces) as &dyn Look; threads], among),
    ]
}

/// The median over the rounds of what is asked of each, for each of the four.
fn over(rounds: &[[Round; 2]], what: impl Fn(&[Round; 2], usize) -> f64) -> Round {
    [0, 1, 2, 3]
        .map(|which| median(&mut rounds.iter().map(|round| what(round, which)).collect::<Vec<_>>()))
}

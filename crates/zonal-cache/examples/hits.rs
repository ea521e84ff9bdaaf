//! What a hit costs: 4 KiB from memory by `read_at`, by `pin`, and by `pread` of the same file from the
//! kernel's cache; and a bare copy of the same pages, which is what no cache can do without. Times are of the CPU, so that
//! other programs count for less; ratios are medians over rounds in which the four take turns.
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

    println!("4 KiB in memory; ns of CPU a look (medians of {ROUNDS}), ratios to pread\n");
    println!("pages   threads     pread   read_at       pin      copy   read_at x   pin x  copy x");
    let pinned = file.pin(0..PAGES * PAGE as u64)?;
    let pieces: Vec<&[u8]> = pinned.pieces().collect();
    let mut single = Vec::new();
    for threads in [1, 2] {
        for (name, among) in [("16", 16), ("64 MiB", PAGES)] {
            let preads: Vec<Pread> =
                (0..threads).map(|_| kernel.try_clone().map(Pread)).collect::<Result<_, _>>()?;
            let reads: Vec<ReadAt> = (0..threads).map(|_| ReadAt(file.clone())).collect();
            let pins: Vec<Pin> = (0..threads).map(|_| Pin(file.clone())).collect();
            let mut times = [const { Vec::new() }; 4];
            let mut ratios = [const { Vec::new() }; 3];
            for _ in 0..ROUNDS {
                let round = [
                    time(&preads.iter().map(|it| it as &dyn Look).collect::<Vec<_>>(), among),
                    time(&reads.iter().map(|it| it as &dyn Look).collect::<Vec<_>>(), among),
                    time(&pins.iter().map(|it| it as &dyn Look).collect::<Vec<_>>(), among),
                    time(&vec![&Copy(&pieces) as &dyn Look; threads], among),
                ];
                times.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
                (0..3).for_each(|at| ratios[at].push(round[0] / round[at + 1]));
            }
            let [pread, read, pin, copy] = times.each_mut().map(|all| median(all));
            let [by_read, by_pin, by_copy] = ratios.each_mut().map(|all| median(all));
            print!("{name:<8}{threads:>7}{pread:>10.0}{read:>10.0}{pin:>10.0}{copy:>10.0}");
            println!("{by_read:>12.1}{by_pin:>8.1}{by_copy:>8.1}");
            single.push((name, [pread, read, pin]));
        }
    }
    println!("\ntwo threads against one (2.0 is twice as much)");
    for at in 0..2 {
        let (name, one) = single[at];
        let (_, two) = single[at + 2];
        let gain = |which: usize| 2.0 * one[which] / two[which];
        let (pread, read, pin) = (gain(0), gain(1), gain(2));
        println!("{name:<8}{:>7}{pread:>10.2}{read:>10.2}{pin:>10.2}", "");
    }
    assert_eq!(cache.stats().read, PAGES, "all were hits");
    Ok(())
}

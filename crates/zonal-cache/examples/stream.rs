//! A file that is not in memory, read from front to back: past the kernel's cache with 32 requests of 128 KiB
//! on their way (`io_uring`), and through the page cache with the same reads ahead. They take turns.
//!
//! ```text
//! cargo run --release -p zonal-cache --example stream -- [FILE]
//! ```

use io_uring::{IoUring, opcode, types};
use rustix::fs::OFlags;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use zonal_cache::{Advice, Cache, FileStore, Ring, S3Fifo, Stats};

const REQUEST: usize = 128 << 10;
const DEPTH: usize = 32;
/// Bytes of a file made for this.
const LEN: u64 = 512 << 20;
const ROUNDS: usize = 7;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[repr(align(4096))]
struct Buffer([u8; REQUEST]);

/// Bytes a second.
fn raw(path: &Path) -> Result<f64> {
    let direct = OFlags::DIRECT.bits() as i32;
    let file = File::options().read(true).custom_flags(direct).open(path)?;
    let len = file.metadata()?.len();
    let mut ring = IoUring::new(DEPTH as u32)?;
    let mut buffers: Vec<Box<Buffer>> =
        (0..DEPTH).map(|_| Box::new(Buffer([1; REQUEST]))).collect();
    let (start, mut next, mut inside, mut done) = (Instant::now(), 0, 0, 0);
    let mut free: Vec<usize> = (0..DEPTH).collect();
    while done < len {
        while next < len
            && let Some(buffer) = free.pop()
        {
            let at = buffers[buffer].0.as_mut_ptr();
            let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), at, REQUEST as u32);
            let entry = entry.offset(next).build().user_data(buffer as u64);
            // SAFETY: the buffer is in no other request, and outlives this one: all are waited for.
            unsafe { ring.submission().push(&entry) }?;
            next += REQUEST as u64;
            inside += 1;
        }
        ring.submit_and_wait(1)?;
        for entry in ring.completion() {
            done += u64::try_from(entry.result())?;
            free.push(entry.user_data() as usize);
            inside -= 1;
        }
    }
    assert_eq!(inside, 0);
    Ok(len as f64 / start.elapsed().as_secs_f64())
}

/// The same through the cache, with a ring or with threads.
fn cached(path: &Path, ring: Option<&Arc<Ring>>, threads: usize) -> Result<(f64, Stats)> {
    let window = (DEPTH * REQUEST / 4096) as u32;
    let cache =
        Cache::<S3Fifo>::builder().memory(64 << 20).window(window).io_threads(threads).open()?;
    let file = cache.open(FileStore::open(path)?.with_ring(ring.cloned()))?;
    file.advise(Advice::UseOnce);
    let mut bytes = vec![0; REQUEST];
    // Memory that was never touched is the system's to make, once, and no matter of reading.
    file.read_at(&mut bytes, 0)?;
    let (start, mut at) = (Instant::now(), 0);
    loop {
        let got = file.read_at(&mut bytes, at)?;
        if got == 0 {
            break;
        }
        at += got as u64;
    }
    Ok((at as f64 / start.elapsed().as_secs_f64(), cache.stats()))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir_in(".")?;
    let path = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => {
            let path = directory.path().join("file");
            let mut file = File::create(&path)?;
            let piece: Vec<u8> = (0..1 << 20).map(|at| (at / 7) as u8).collect();
            (0..LEN >> 20).try_for_each(|_| file.write_all(&piece))?;
            file.sync_all()?;
            path
        }
    };
    let ring =
        Ring::new(8 * DEPTH as u32).inspect_err(|error| println!("no io_uring: {error}")).ok();
    let (mut speeds, mut asked) = ([const { Vec::new() }; 3], (0, 0));
    for _ in 0..ROUNDS {
        speeds[0].push(raw(&path)?);
        let (speed, stats) = cached(&path, ring.as_ref(), 1)?;
        speeds[1].push(speed);
        asked = (stats.read, stats.asked);
        speeds[2].push(cached(&path, None, 4)?.0);
    }
    let ratios = |which: usize| -> Vec<f64> {
        speeds[which].iter().zip(&speeds[0]).map(|(cached, raw)| cached / raw).collect()
    };
    let mut by = [ratios(1), ratios(2)];
    let [raw, ring, threads] = speeds.each_mut().map(|all| median(all) / 1e6);
    println!("MB/s, medians of {ROUNDS} rounds");
    println!("O_DIRECT, 128 KiB, 32 at once    {raw:8.0}");
    println!("cache, io_uring                  {ring:8.0}   {:.2}", median(&mut by[0]));
    println!("cache, 4 threads                 {threads:8.0}   {:.2}", median(&mut by[1]));
    println!("{} pages read, frames asked for {} times", asked.0, asked.1);
    Ok(())
}

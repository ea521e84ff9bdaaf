//! A file that is not in memory, read from front to back: past the kernel's cache with 32 requests of 128 KiB
//! on their way (`io_uring`), and through the page cache with the same reads ahead: on a ring, on one that knows the arena's
//! memory as registered buffers, and by threads. They take turns.
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

/// By which way what is read ahead is read.
enum Ahead<'a> {
    Ring(Option<&'a Arc<Ring>>),
    Registered,
    Threads(usize),
}

/// What reading it through the cache came to.
struct Cached {
    /// Bytes a second.
    speed: f64,
    /// Seconds of CPU, of the program and of the kernel for it.
    cpu: f64,
    stats: Stats,
    /// Reads into registered buffers.
    fixed: u64,
}

/// The same through the cache.
fn cached(path: &Path, ahead: &Ahead<'_>) -> Result<Cached> {
    let window = (DEPTH * REQUEST / 4096) as u32;
    let threads = if let Ahead::Threads(threads) = ahead { *threads } else { 1 };
    let cache =
        Cache::<S3Fifo>::builder().memory(64 << 20).window(window).io_threads(threads).open()?;
    let ring = match ahead {
        Ahead::Ring(ring) => ring.cloned(),
        Ahead::Registered => Ring::with_buffers(8 * DEPTH as u32, cache.frames().arena()).ok(),
        Ahead::Threads(_) => None,
    };
    let file = cache.open(FileStore::open(path)?.with_ring(ring.clone()))?;
    file.advise(Advice::UseOnce);
    let mut bytes = vec![0; REQUEST];
    // Memory that was never touched is the system's to make, once, and no matter of reading.
    file.read_at(&mut bytes, 0)?;
    let (start, used, mut at) = (Instant::now(), cpu_time(), 0);
    loop {
        let got = file.read_at(&mut bytes, at)?;
        if got == 0 {
            break;
        }
        at += got as u64;
    }
    let (speed, cpu) = (at as f64 / start.elapsed().as_secs_f64(), cpu_time() - used);
    let fixed = ring.map_or(0, |ring| ring.fixed_reads());
    Ok(Cached { speed, cpu, stats: cache.stats(), fixed })
}

/// Seconds of CPU that the program has used.
fn cpu_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
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
    let ways = [Ahead::Ring(ring.as_ref()), Ahead::Registered, Ahead::Threads(4)];
    let (mut raws, mut speeds) = (Vec::new(), [const { Vec::new() }; 3]);
    let (mut ratios, mut cpus) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    let (mut asked, mut fixed) = ((0, 0), 0);
    for round in 0..ROUNDS {
        let raw = raw(&path)?;
        raws.push(raw);
        // Who comes after which is another one each time.
        for way in (0..3).map(|way| (way + round) % 3) {
            let Cached { speed, cpu, stats, fixed: in_buffers } = cached(&path, &ways[way])?;
            speeds[way].push(speed);
            ratios[way].push(speed / raw);
            cpus[way].push(cpu * 1e3);
            asked = if way == 0 { (stats.read, stats.asked) } else { asked };
            fixed = fixed.max(in_buffers);
        }
    }
    println!("MB/s, medians of {ROUNDS} rounds; times as fast; ms of CPU");
    println!("O_DIRECT, 128 KiB, 32 at once    {:8.0}", median(&mut raws) / 1e6);
    for (way, name) in ["io_uring", "the same, registered", "4 threads"].into_iter().enumerate() {
        let (speed, ratio) = (median(&mut speeds[way]) / 1e6, median(&mut ratios[way]));
        println!("cache, {name:<22}    {speed:8.0}   {ratio:.2}   {:.0}", median(&mut cpus[way]));
    }
    println!("{} pages read, frames asked for {} times", asked.0, asked.1);
    println!("{fixed} reads into registered buffers");
    Ok(())
}

//! A file that is not in memory, read from front to back: past the kernel's cache with 32 requests of 128 KiB
//! on their way (`io_uring`), and through the page cache with the same reads ahead: on a ring, on one that knows the arena's
//! memory as registered buffers, and by threads. They take turns, as does a reader of 1 MiB at a time with the window that a
//! cache has by default. Before that the file is read each way by a
//! process of its own, through a cache of a quarter of it, and one as long is written; what that has in memory at most is compared with
//! the bound.
//!
//! ```text
//! cargo run --release -p zonal-cache --example stream -- [FILE]
//! ```

use io_uring::{IoUring, opcode, types};
use rustix::fs::OFlags;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use zonal_cache::{Advice, Cache, FileStore, Ring, S3Fifo, Stats};

const REQUEST: usize = 128 << 10;
const DEPTH: usize = 32;
/// Bytes of a file made for this.
const LEN: u64 = 512 << 20;
/// And of one to see how much memory that takes: of a quarter of it the program itself, some 3 MiB, is little.
const LARGE: u64 = 1 << 30;
const ROUNDS: usize = 7;
/// Bytes that the cache may have where speed is measured.
const BOUND: usize = 64 << 20;
/// What each way to read ahead is called.
const WAYS: [&str; 4] = ["io_uring", "the same, registered", "4 threads", "io_uring, 1 MiB"];
/// What a stream leaves behind: nothing, or all there is room for.
const ADVICE: [(&str, Advice); 2] = [("used once", Advice::UseOnce), ("kept", Advice::Sequential)];

/// What it is called to write a stream.
const WRITTEN: &str = "written";

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

/// How a program reads through the cache.
struct Way<'a> {
    ahead: Ahead<'a>,
    request: usize,
    /// Pages of a window, if not as by default.
    window: Option<u32>,
}

impl<'a> Way<'a> {
    /// As long requests, and as far ahead, as the reads past the cache.
    const fn as_raw(ahead: Ahead<'a>) -> Self {
        Self { ahead, request: REQUEST, window: Some((DEPTH * REQUEST / 4096) as u32) }
    }
}

/// The same through a cache of `bound` bytes, tables included.
fn cached(path: &Path, way: &Way<'_>, advice: Advice, bound: usize) -> Result<Cached> {
    let ahead = &way.ahead;
    let threads = if let Ahead::Threads(threads) = ahead { *threads } else { 1 };
    let builder = Cache::<S3Fifo>::builder().memory_in_all(bound).io_threads(threads);
    let builder = if let Some(window) = way.window { builder.window(window) } else { builder };
    let cache = builder.open()?;
    let ring = match ahead {
        Ahead::Ring(ring) => ring.cloned(),
        Ahead::Registered => Ring::with_buffers(8 * DEPTH as u32, cache.frames().arena()).ok(),
        Ahead::Threads(_) => None,
    };
    let file = cache.open(FileStore::open(path)?.with_ring(ring.clone()))?;
    file.advise(advice);
    let mut bytes = vec![0; way.request];
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

/// Bytes that this process has had in memory at most.
fn peak() -> Result<usize> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("there is no VmHWM")?;
    Ok(kib.parse::<usize>()? << 10)
}

/// Writes a file of `len` bytes beside `path`, from front to back, through a cache of `bound` bytes, tables included.
fn write(path: &Path, len: u64, bound: usize) -> Result<()> {
    let cache = Cache::<S3Fifo>::builder().memory_in_all(bound).open()?;
    let own = tempfile::NamedTempFile::new_in(path.parent().ok_or("a file is in a directory")?)?;
    let file = cache.open(FileStore::open(own.path())?)?;
    let bytes = vec![7; REQUEST];
    for at in (0..len).step_by(REQUEST) {
        assert_eq!(file.write_at(&bytes, at)?, REQUEST);
    }
    file.sync()?;
    assert!(cache.stats().written >= len / 4096);
    Ok(())
}

/// What processes have in memory at most that read the file, each once, or write one as long, through a cache of a quarter
/// of it: no more than a twentieth above that.
fn print_peaks(path: &Path) -> Result<()> {
    let bound = fs::metadata(path)?.len() / 4;
    println!("MiB in memory at most, all of a process, with a bound of {}", bound >> 20);
    for (way, name) in WAYS.into_iter().enumerate() {
        print!("{name:<22}");
        for advice in ADVICE.map(|(name, _)| name).into_iter().chain((way == 0).then_some(WRITTEN))
        {
            let mut again = Command::new(std::env::current_exe()?);
            let said = again.arg(path).args([&way.to_string(), advice]).output()?;
            let peak: f64 = String::from_utf8(said.stdout)?.trim().parse()?;
            let above = (peak / bound as f64 - 1.0) * 100.0;
            print!("   {:6.1} {advice} ({above:+.1} %)", peak / f64::from(1 << 20));
            assert!(above <= 5.0, "{name}, {advice}: the bound does not hold");
        }
        println!();
    }
    Ok(())
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
    let mut arguments = std::env::args().skip(1);
    let directory = tempfile::tempdir_in(".")?;
    let path = arguments.next().map(PathBuf::from);
    let ring =
        Ring::new(8 * DEPTH as u32).inspect_err(|error| println!("no io_uring: {error}")).ok();
    let long = Way { ahead: Ahead::Ring(ring.as_ref()), request: 1 << 20, window: None };
    let [by_ring, registered, threads] =
        [Ahead::Ring(ring.as_ref()), Ahead::Registered, Ahead::Threads(4)].map(Way::as_raw);
    let ways = [by_ring, registered, threads, long];
    if let (Some(path), Some(way), Some(advice)) = (&path, arguments.next(), arguments.next()) {
        let way = &ways[way.parse::<usize>()?];
        let len = fs::metadata(path)?.len();
        if advice == WRITTEN {
            write(path, len, len as usize / 4)?;
        } else {
            let found = ADVICE.iter().find(|(name, _)| *name == advice);
            cached(path, way, found.ok_or("no such advice")?.1, len as usize / 4)?;
        }
        println!("{}", peak()?);
        return Ok(());
    }
    let own = directory.path().join("file");
    let of = |len| path.clone().map_or_else(|| make(&own, len).map(|()| own.clone()), Ok);
    print_peaks(&of(LARGE)?)?;
    print_speeds(&of(LEN)?, &ways)
}

/// Makes a file.
fn make(path: &Path, len: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let piece: Vec<u8> = (0..1 << 20).map(|at| (at / 7) as u8).collect();
    (0..len >> 20).try_for_each(|_| file.write_all(&piece))?;
    Ok(file.sync_all()?)
}

/// Reads the file in turns, and prints how fast that is.
fn print_speeds(path: &Path, ways: &[Way<'_>; WAYS.len()]) -> Result<()> {
    let (mut raws, mut speeds) = (Vec::new(), [const { Vec::new() }; WAYS.len()]);
    let (mut ratios, mut cpus) =
        ([const { Vec::new() }; WAYS.len()], [const { Vec::new() }; WAYS.len()]);
    let (mut asked, mut fixed) = ((0, 0), 0);
    for round in 0..ROUNDS {
        let raw = raw(path)?;
        raws.push(raw);
        // Who comes after which is another one each time.
        for way in (0..WAYS.len()).map(|way| (way + round) % WAYS.len()) {
            let Cached { speed, cpu, stats, fixed: in_buffers } =
                cached(path, &ways[way], Advice::UseOnce, BOUND)?;
            speeds[way].push(speed);
            ratios[way].push(speed / raw);
            cpus[way].push(cpu * 1e3);
            asked = if way == 0 { (stats.read, stats.asked) } else { asked };
            fixed = fixed.max(in_buffers);
        }
    }
    println!("MB/s, medians of {ROUNDS} rounds; times as fast; ms of CPU");
    println!("O_DIRECT, 128 KiB, 32 at once    {:8.0}", median(&mut raws) / 1e6);
    for (way, name) in WAYS.into_iter().enumerate() {
        let (speed, ratio) = (median(&mut speeds[way]) / 1e6, median(&mut ratios[way]));
        println!("cache, {name:<22}    {speed:8.0}   {ratio:.2}   {:.0}", median(&mut cpus[way]));
    }
    println!("{} pages read, frames asked for {} times", asked.0, asked.1);
    println!("{fixed} reads into registered buffers");
    Ok(())
}

//! `zonal iosched`: what is asked for, run after run.
//!
//! ```
//! use clap::Parser;
//! use zonal_iosched::{Cli, Command};
//!
//! let line = "zonal iosched --disk desktop_2014 --size 64M --processes 2 --summary";
//! let Command::Iosched(args) = Cli::try_parse_from(line.split(' '))?.command;
//! let mut out = Vec::new();
//! zonal_iosched::command::run(&args, &mut out)?;
//! assert!(String::from_utf8_lossy(&out).contains("cfq, 300 ms"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::time::Duration;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use zonal_cfq::units::{Sector, Span};
use zonal_cli::bar::Bar;
use zonal_cli::interrupt;
use zonal_cli::outfile::OutFile;
use zonal_cli::size::{parse_duration, parse_size};
use zonal_disk::{Disk, builtin, builtins};

use crate::error::IoschedError;
use crate::figures::Outcome;
use crate::scheduler::{Kind, Subject};
use crate::simulated::simulate;
use crate::target_file::TargetFile;
use crate::workload::Workload;
use crate::{cached, records, tables, threads};

/// Arguments of `zonal iosched`.
#[derive(Clone, Debug, Args)]
pub struct IoschedArgs {
    /// The file or block device to run on; one that is not there is made, and removed again
    #[arg(required_unless_present_any = ["disk", "list"], conflicts_with = "disk")]
    pub file: Option<PathBuf>,
    /// Simulate this disk instead: the name of one that is built in, or a disk file
    #[arg(long, value_name = "NAME")]
    pub disk: Option<String>,
    /// List the disks that are built in
    #[arg(long)]
    pub list: bool,
    /// Schedulers, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "cfq,deadline,noop")]
    pub scheduler: Vec<Kind>,
    /// CFQ's target latencies in ms, separated by commas: each is a run
    #[arg(long, value_delimiter = ',', default_value = "300", value_name = "MS",
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub target_latency: Vec<u64>,
    /// CFQ's idle wait for a queue's next request in ms
    #[arg(long, default_value_t = 8, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub slice_idle: u64,
    /// What the processes do
    #[arg(long, default_value = "readers")]
    pub workload: Work,
    /// Processes, separated by commas: each number is a run. For `mixed` and `fsync` the readers beside
    #[arg(long, value_delimiter = ',', default_value = "4", value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub processes: Vec<u32>,
    /// What all files have together: 16G simulated, the file's length, or 256M if it is made; of a file
    /// whole pages
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub size: Option<usize>,
    /// How long a run takes, but for `readers`, which end with their files: 60s simulated, or 5s
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub duration: Option<Duration>,
    /// Requests at the file at a time
    #[arg(long, default_value_t = 4, value_name = "N", conflicts_with = "disk",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub depth: u32,
    /// Go through the kernel's page cache
    #[arg(long, conflicts_with = "disk")]
    pub buffered: bool,
    /// Put a page cache of this size above the scheduler: processes read and write through it
    #[arg(long, value_parser = parse_size, value_name = "SIZE",
          conflicts_with_all = ["disk", "buffered"])]
    pub cache: Option<usize>,
    /// Let a workload that writes overwrite a file that is there
    #[arg(long, conflicts_with = "disk")]
    pub overwrite: bool,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print no line for each process
    #[arg(long)]
    pub summary: bool,
    /// Print JSON, one object a run and line, instead of tables
    #[arg(long)]
    pub json: bool,
    /// Also write the results to this file as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// What `--workload` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Each reads a file of its own, from its beginning to its end
    Readers,
    /// Each reads 4 KiB anywhere in a file of its own
    Random,
    /// Readers beside one whose writes are written back
    Mixed,
    /// A process that calls fsync, where processes wait for each other, beside readers
    Fsync,
}

impl Work {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Readers => "readers",
            Self::Random => "random",
            Self::Mixed => "mixed",
            Self::Fsync => "fsync",
        }
    }

    const fn writes(self) -> bool {
        matches!(self, Self::Mixed | Self::Fsync)
    }
}

/// What runs go over.
pub(crate) enum Ground {
    Disk(Disk),
    File(TargetFile, PathBuf),
}

impl Ground {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Disk(disk) => disk.name.clone(),
            Self::File(_, path) => path.display().to_string(),
        }
    }

    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Disk(_) => "simulated",
            Self::File(..) => "measured",
        }
    }

    fn capacity(&self) -> Sector {
        match self {
            Self::Disk(disk) => disk.capacity(),
            Self::File(file, _) => Sector(file.bytes() / 512),
        }
    }
}

/// A run, and what it showed.
pub(crate) struct Done {
    pub(crate) subject: Subject,
    pub(crate) processes: u32,
    pub(crate) outcome: Outcome,
}

/// Bytes of all files, if nothing else is said: twice the memory of the machine of the tables.
const SIMULATED: usize = 16 << 30;
const MADE: usize = 256 << 20;

/// Runs what `args` ask for and prints the results to `out`, remarks to stderr.
///
/// # Errors
///
/// [`IoschedError`], before anything is run where the arguments are at fault.
pub fn run(args: &IoschedArgs, out: &mut dyn Write) -> Result<(), IoschedError> {
    if args.list {
        return Ok(tables::disks(out)?);
    }
    let csv = args.csv.as_deref().map(OutFile::open).transpose()?;
    let ground = ground(args)?;
    let size = match (args.size, &ground) {
        (Some(size), Ground::Disk(_)) => size as u64,
        (None, Ground::Disk(disk)) => (SIMULATED as u64).min(disk.capacity().bytes()),
        // Whole pages, as the file's own length.
        (Some(size), Ground::File(..)) => size as u64 / 4096 * 4096,
        (None, Ground::File(file, _)) => file.bytes(),
    };
    for processes in &args.processes {
        workload(args, *processes, size, &ground)?;
    }
    let mut done = Vec::new();
    let all = (args.processes.len() * subjects(args, &ground).len()) as u64;
    let bar = Bar::new(all, args.no_progress);
    for processes in &args.processes {
        for subject in subjects(args, &ground) {
            let next = format!("{}, {processes} processes", subject.name());
            bar.at(done.len() as u64, all, &next);
            let work = workload(args, *processes, size, &ground)?;
            let outcome = match &ground {
                Ground::Disk(disk) => simulate(&subject, disk, work)?,
                Ground::File(file, path) => {
                    let depth = args.depth as usize;
                    match args.cache {
                        None => threads::run(&subject, file, work, depth)?,
                        Some(bytes) => cached::run(&subject, path, work, depth, bytes)?,
                    }
                }
            };
            if interrupt::is_requested() {
                break;
            }
            done.push(Done { subject, processes: *processes, outcome });
        }
    }
    drop(bar);
    if args.json {
        for it in &mut done {
            serde_json::to_writer(&mut *out, &records::object(args, &ground, it))
                .map_err(io::Error::from)?;
            writeln!(out)?;
        }
        for row in records::changes(args, &ground, &done) {
            serde_json::to_writer(&mut *out, &row).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    } else if !done.is_empty() {
        tables::print(args, &ground, &mut done, out)?;
    }
    if let Some(file) = csv.filter(|_| !done.is_empty()) {
        file.replace(&records::csv_of(args, &ground, &mut done)?)?;
    }
    Ok(interrupt::outcome()?)
}

fn ground(args: &IoschedArgs) -> Result<Ground, IoschedError> {
    if let Some(name) = &args.disk {
        return Ok(Ground::Disk(disk_called(name)?));
    }
    let path = args.file.clone().unwrap_or_default();
    let size = args.size.unwrap_or(MADE) as u64;
    let writes = args.workload.writes();
    let file = TargetFile::open(&path, size, writes, args.overwrite, args.buffered)?;
    if !file.is_direct() && !args.buffered {
        eprintln!(
            "zonal: {} is read through the kernel's page cache: it cannot be gone around",
            path.display()
        );
    }
    Ok(Ground::File(file, path))
}

/// A disk that is built in, or that of a file.
fn disk_called(name: &str) -> Result<Disk, IoschedError> {
    if let Some(disk) = builtin(name) {
        return Ok(disk);
    }
    let path = Path::new(name);
    if path.exists() || name.contains(['/', '.']) {
        return Ok(Disk::load(path)?);
    }
    let known: Vec<&str> = builtins().map(|(name, _)| name).collect();
    Err(IoschedError::UnknownDisk { name: name.into(), known: known.join(", ") })
}

fn subjects(args: &IoschedArgs, ground: &Ground) -> Vec<Subject> {
    let rotational = match ground {
        Ground::Disk(disk) => disk.is_rotational(),
        Ground::File(file, _) => file.is_rotational(),
    };
    let mut subjects = Vec::new();
    for kind in &args.scheduler {
        // Others have no target.
        let targets = if *kind == Kind::Cfq { &args.target_latency[..] } else { &[300] };
        subjects.extend(targets.iter().map(|target| Subject {
            target_ms: *target,
            slice_idle_ms: args.slice_idle,
            rotational,
            ..Subject::new(*kind)
        }));
    }
    subjects
}

fn workload(
    args: &IoschedArgs,
    count: u32,
    size: u64,
    ground: &Ground,
) -> Result<Workload, IoschedError> {
    let capacity = ground.capacity();
    let default = match ground {
        Ground::Disk(_) => Duration::from_secs(60),
        Ground::File(..) => Duration::from_secs(5),
    };
    let duration = args.duration.unwrap_or(default);
    let limit = Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    match (args.workload, args.cache) {
        (Work::Mixed, Some(_)) => Workload::mixed_cached(count, size, capacity, limit),
        (Work::Fsync, Some(_)) => Workload::fsync_cached(count, size, capacity, limit),
        (Work::Readers, _) => {
            let readers = Workload::readers(count, size, capacity)?;
            Ok(Workload { limit: args.duration.map(|_| limit), ..readers })
        }
        (Work::Random, _) => Workload::random(count, size, capacity, limit, args.seed),
        (Work::Mixed, None) => Workload::mixed(count, size, capacity, limit),
        (Work::Fsync, None) => Workload::fsync(count, size, capacity, limit, args.seed),
    }
}

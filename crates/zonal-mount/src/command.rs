//! The command: mounts, and waits for the end.
//!
//! ```
//! use clap::Parser;
//! use zonal_mount::command::Eviction;
//! use zonal_mount::{Cli, Command};
//!
//! let line = ["zonal", "mount", "/srv", "/mnt", "--memory", "256M", "--evict", "sieve"];
//! let Command::Mount(args) = Cli::try_parse_from(line)?.command;
//! assert_eq!((args.memory, args.evict), (256 << 20, Eviction::Sieve));
//! # Ok::<(), clap::Error>(())
//! ```

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use signal_hook::consts::SIGTERM;
use zonal_cache::evict::Evict;
use zonal_cache::{MultiGen, S3Fifo, Sieve, TwoLists};
use zonal_cli::interrupt;
use zonal_cli::size::{human, parse_size};

use crate::error::MountError;
use crate::session::{Mounted, Options};

/// How often the command looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Which page goes when there has to be room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Eviction {
    /// Two lists with a second chance, as Linux has
    TwoLists,
    /// S3-FIFO
    S3Fifo,
    /// SIEVE
    Sieve,
    /// Generations and tiers, as later kernels have
    Mglru,
}

/// What to mount, where, and how.
#[derive(Clone, Debug, Args)]
pub struct MountArgs {
    /// The directory
    pub directory: PathBuf,
    /// Where to mount it: an empty directory
    pub mountpoint: PathBuf,
    /// Memory of the whole process, whatever is read and written. Below 16M file data get half of it, 1M at least, and the
    /// process takes more than this
    #[arg(long, default_value = "256M", value_parser = parse_size)]
    pub memory: usize,
    /// Which page goes when there has to be room
    #[arg(long, value_enum, default_value = "s3-fifo")]
    pub evict: Eviction,
    /// Threads that answer the kernel
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: u8,
    /// Name of the statistics file, at the root; it is not listed
    #[arg(long, default_value = ".zonal")]
    pub stats: String,
    /// Read and write the files below through the kernel's cache, which is then not bounded
    #[arg(long)]
    pub buffered: bool,
}

impl From<&MountArgs> for Options {
    fn from(args: &MountArgs) -> Self {
        Self {
            memory: args.memory,
            threads: usize::from(args.threads),
            statistics: args.stats.clone(),
            buffered: args.buffered,
        }
    }
}

/// Runs the command, until the directory is unmounted: by `umount`, Ctrl-C or SIGTERM. While it is in use,
/// the latter two take it out of sight, and it ends with its last user.
///
/// # Errors
/// [`MountError`] says why nothing is mounted, or what could not be written back.
pub fn run(args: &MountArgs, out: &mut dyn Write) -> Result<(), MountError> {
    match args.evict {
        Eviction::TwoLists => mount::<TwoLists>(args, out),
        Eviction::S3Fifo => mount::<S3Fifo>(args, out),
        Eviction::Sieve => mount::<Sieve>(args, out),
        Eviction::Mglru => mount::<MultiGen>(args, out),
    }
}

fn mount<E: Evict>(args: &MountArgs, out: &mut dyn Write) -> Result<(), MountError> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, stop.clone()).map_err(signals)?;
    let mounted = Mounted::<E>::start(&args.directory, &args.mountpoint, &Options::from(args))?;
    writeln!(
        out,
        "{} is mounted on {on}: {} of memory, {} of it for file data, {}. `umount {on}` or Ctrl-C ends it.",
        args.directory.display(),
        human(args.memory as u64),
        human(mounted.stats().bound as u64 * 4096),
        E::NAME,
        on = args.mountpoint.display(),
    )?;
    out.flush()?;
    let mut is_told = false;
    while !mounted.is_over() {
        is_told = is_told || tell_not_direct(&mounted);
        // Relaxed: what it decides is only when to stop.
        if interrupt::is_requested() || stop.load(Ordering::Relaxed) {
            if let Err(error) = mounted.unmount() {
                writeln!(out, "{error}; it is out of sight, and ends with its last user")?;
                out.flush()?;
                mounted.detach()?;
            }
            break;
        }
        thread::sleep(LOOK);
    }
    // Of a mount that was over before.
    let _ = is_told || tell_not_direct(&mounted);
    let stats = mounted.wait()?;
    writeln!(out, "Unmounted: {} pages read, {} written.", stats.read, stats.written)?;
    Ok(())
}

/// Says that files below go through the kernel's cache, if any does that was not to; whether it was said.
fn tell_not_direct<E: Evict>(mounted: &Mounted<E>) -> bool {
    let why = mounted.not_direct();
    if let Some(why) = why {
        eprintln!("zonal: files below go through the kernel's cache too, beyond --memory: {why}");
    }
    why.is_some()
}

fn signals(source: io::Error) -> MountError {
    MountError::Lab(zonal_cli::error::LabError::Machine { what: "watch for SIGTERM", source })
}

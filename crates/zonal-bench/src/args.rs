//! The arguments of `zonal bench`.
//!
//! ```
//! use clap::Parser;
//! use zonal_bench::args::BenchLine;
//!
//! let args = BenchLine::try_parse_from(["bench", "hot-pair", "--threads", "1,2"])?.args;
//! assert_eq!(args.threads, [1, 2]);
//! # Ok::<(), clap::Error>(())
//! ```

use core::time::Duration;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, ValueEnum};
use zonal_cli::size::{parse_duration, parse_size};

use crate::subject::Path;
use crate::workload::Workload;

/// A command line of `bench` alone.
#[derive(Clone, Debug, Parser)]
#[command(name = "bench")]
pub struct BenchLine {
    /// The arguments.
    #[command(flatten)]
    pub args: BenchArgs,
}

/// Arguments of `zonal bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// The workload, or all of them; `aging` and `tails` have options of their own: `zonal bench aging --help`
    #[arg(value_parser = PossibleValuesParser::new(workload_names()))]
    pub workload: String,
    /// Thread counts, separated by commas; one thread and one per CPU if not given
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub threads: Vec<usize>,
    /// Frames each subject manages, in bytes: 512M, 4G, ...
    #[arg(long, value_parser = parse_size, default_value = "4G", value_name = "SIZE")]
    pub memory: usize,
    /// Allow more frames than the machine has memory; they are reserved, never touched
    #[arg(long, conflicts_with = "touch")]
    pub overcommit: bool,
    /// Presets of zonal, separated by commas; in any case, with or without dashes
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub preset: Vec<String>,
    /// Subjects (presets and peers), likewise; `all` for every one
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub subjects: Vec<String>,
    /// The path zonal's presets are reached by; a peer has the one it has
    #[arg(long, default_value = "all")]
    pub path: PathArg,
    /// Sample for about this long per workload, rather than a number of samples: 5, 2s, 500ms
    #[arg(long, value_parser = parse_duration, value_name = "TIME", conflicts_with = "samples")]
    pub duration: Option<Duration>,
    /// Samples of each subject and thread count; up to twice as many if most have to be dropped, up to
    /// eight times if the CPUs move apart or together in all of them
    #[arg(long, default_value_t = 15, value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub samples: usize,
    /// Seed of every random order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write to every page (page-fault1, random-free), beside the kernel's own page faults
    #[arg(long)]
    pub touch: bool,
    /// fragment: two threads fill memory in turns, then everything of one of them is freed
    #[arg(long)]
    pub by_cpu: bool,
    /// fragment --by-cpu: frames that the threads replace before, in random batches
    #[arg(long, default_value_t = 0, value_name = "N", requires = "by_cpu")]
    pub replace: u32,
    /// fragment: compact before blocks are counted (presets of zonal only)
    #[arg(long)]
    pub compact: bool,
    /// stress-highalloc: pauses between requests, in ms, separated by commas; 1,100 if not given
    #[arg(long, value_delimiter = ',', value_name = "N",
          value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub delay_ms: Vec<u64>,
    /// stress-highalloc: memory it manages instead of --memory, 512M if not given; all of it is written to
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub highalloc_memory: Option<usize>,
    /// Print JSON, one object a line, instead of tables
    #[arg(long)]
    pub json: bool,
    /// Also write the results to this file as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also write the results to this file as JSON, one object a line
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// What `--path` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathArg {
    /// A handle owned by the thread
    Owned,
    /// A reference shared by all
    Shared,
    /// Both
    All,
}

impl PathArg {
    /// Whether `path` is chosen.
    #[must_use]
    pub fn takes(self, path: Path) -> bool {
        match self {
            Self::Owned => path == Path::Owned,
            Self::Shared => path == Path::Shared,
            Self::All => true,
        }
    }
}

fn workload_names() -> Vec<PossibleValue> {
    let names = Workload::ALL.iter().map(|w| PossibleValue::new(w.name()).help(w.about()));
    names.chain([PossibleValue::new("all").help("every workload in turn")]).collect()
}

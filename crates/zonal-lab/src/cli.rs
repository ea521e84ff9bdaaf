//! The command line.
//!
//! ```
//! use clap::Parser;
//! use zonal_lab::cli::Cli;
//!
//! let cli = Cli::try_parse_from(["zonal", "bench", "hot-pair", "--threads", "1,2"])?;
//! assert!(cli.command.is_some());
//! # Ok::<(), clap::Error>(())
//! ```

use core::time::Duration;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::calibrate::CalibrateArgs;
use crate::record::RecordArgs;
use crate::replay::ReplayArgs;
use crate::reproduce::ReproduceArgs;
use crate::sim_command::SimArgs;
use crate::subject::Path;
use crate::workload::Workload;

/// Page-frame allocators, measured side by side.
///
/// Without a command: page-fault1 on one CPU and on all, zonal beside a peer.
#[derive(Debug, Parser)]
#[command(name = "zonal", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workload on presets of zonal and on other allocators, on pinned threads
    Bench(BenchArgs),
    /// Run a workload and print its buddyinfo, pagetypeinfo, zoneinfo and vmstat
    Info(InfoArgs),
    /// Run a workload on a simulated machine
    Sim(SimArgs),
    /// Run a workload and write down what it asked of the allocator
    Record(RecordArgs),
    /// Ask of presets what a trace, of Linux or of `zonal record`, asked of the allocator
    Replay(ReplayArgs),
    /// Simulate what was published and print both, with the error of each number
    Reproduce(ReproduceArgs),
    /// Measure this machine and write a machine file for the simulator
    Calibrate(CalibrateArgs),
}

/// Arguments of `zonal bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// The workload, or all of them
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
    /// Presets of zonal, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub preset: Vec<String>,
    /// Subjects (presets and peers), separated by commas; `all` for every one
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
    /// fragment: compact before blocks are counted (presets of zonal only)
    #[arg(long)]
    pub compact: bool,
    /// stress-highalloc: pauses between requests, in ms, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [1, 100],
          value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub delay_ms: Vec<u64>,
    /// stress-highalloc: memory it manages instead of --memory; all of it is written to
    #[arg(long, value_parser = parse_size, default_value = "512M", value_name = "SIZE")]
    pub highalloc_memory: usize,
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

/// Arguments of `zonal info`.
#[derive(Clone, Debug, Args)]
pub struct InfoArgs {
    /// The preset to run
    #[arg(long, default_value = "zonal")]
    pub preset: String,
    /// Frames to manage, in bytes
    #[arg(long, value_parser = parse_size, default_value = "4G", value_name = "SIZE")]
    pub memory: usize,
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

/// Splits a number from its unit.
fn split(text: &str) -> Result<(f64, String), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().map_err(|_| format!("`{text}` does not start with a number"))?;
    Ok((number, unit.trim().to_ascii_lowercase()))
}

/// Parses a size with an optional binary unit.
///
/// ```
/// assert_eq!(zonal_lab::cli::parse_size("1.5G"), Ok(3 << 29));
/// assert_eq!(zonal_lab::cli::parse_size("256MiB"), Ok(256 << 20));
/// assert!(zonal_lab::cli::parse_size("many").is_err());
/// ```
///
/// # Errors
///
/// A text that says what is wrong with `text`.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let (number, unit) = split(text)?;
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => return Err(format!("`{unit}` is no unit of size; K, M, G and T are")),
    };
    let bytes = number * (1u64 << shift) as f64;
    // Above 2^53 the product is rounded, which is far more memory than there is anyway.
    if bytes >= 1.0 && bytes < usize::MAX as f64 {
        Ok(bytes as usize)
    } else {
        Err(format!("`{text}` is no size a machine can have"))
    }
}

/// Parses a time: seconds, or with `ms`, `s` or `m`.
///
/// ```
/// use core::time::Duration;
///
/// assert_eq!(zonal_lab::cli::parse_duration("500ms"), Ok(Duration::from_millis(500)));
/// assert!(zonal_lab::cli::parse_duration("0").is_err());
/// ```
///
/// # Errors
///
/// A text that says what is wrong with `text`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let seconds = match unit.as_str() {
        "" | "s" => number,
        "ms" => number / 1000.0,
        "m" | "min" => number * 60.0,
        _ => return Err(format!("`{unit}` is no unit of time; ms, s and m are")),
    };
    if seconds > 0.0 && seconds <= 86_400.0 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("`{text}` is not between nothing and a day"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_and_times_are_refused_with_a_reason() {
        assert!(parse_size("4X").is_err_and(|why| why.contains("unit")));
        assert!(parse_size("0").is_err());
        assert!(parse_size("-1").is_err());
        assert!(parse_size("1.2.3").is_err());
        assert!(parse_size("99999999999T").is_err());
        assert!(parse_duration("1h").is_err_and(|why| why.contains("unit")));
        assert_eq!(parse_duration("2"), Ok(Duration::from_secs(2)));
    }
}

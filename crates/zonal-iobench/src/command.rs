//! `zonal tiobench`, `zonal sparsetruncate`, `zonal bonnie` and `zonal dbench`.
//!
//! ```
//! use clap::Parser;
//! use zonal_iobench::{Cli, Command, command};
//!
//! let line = "zonal tiobench --machine desktop_2xRAM_ext3 --kernel 3.0 --threads 2 --scale 200";
//! let mut out = Vec::new();
//! command::run(&Cli::try_parse_from(line.split(' '))?.command, &mut out)?;
//! assert!(String::from_utf8_lossy(&out).contains("SeqRead"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::time::Duration;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use zonal_cli::bar::Bar;
use zonal_cli::interrupt;
use zonal_cli::provenance::Provenance;
use zonal_cli::size::{parse_duration, parse_size};
use zonal_cli::table::Table;

use crate::error::IobenchError;
use crate::iostat::Metric;
use crate::kernel::{BASE, KERNELS, Kernel};
use crate::machine::{MACHINES, Machine};
use crate::many_files::BONNIE_FILES;
use crate::program::{Phase, RANDOM, Tiobench};
use crate::real::measure;
use crate::simulated::{Case, Outcome, simulate};
use crate::{file_commands, freeing};
use zonal_scenario::preset::{Preset, preset_called};
use zonal_scenario::truncate;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read and write files by threads, in a directory or on a simulated machine of 2014
    Tiobench(TiobenchArgs),
    /// Truncate files whose pages are all cached, in a directory or on a simulated machine
    Sparsetruncate(SparsetruncateArgs),
    /// Make, read and remove many files, in a directory or on a simulated machine
    Bonnie(BonnieArgs),
    /// Have clients write, flush, read and remove files, in a directory or on a simulated machine
    Dbench(DbenchArgs),
}

/// Arguments of `zonal tiobench`.
#[derive(Clone, Debug, Args)]
pub struct TiobenchArgs {
    /// The directory to run in; files are made there, and removed again
    #[arg(conflicts_with_all = ["machine", "kernel", "scale"])]
    pub directory: Option<PathBuf>,
    /// Machines of the tables to simulate, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "desktop_2xRAM_ext3", value_name = "NAME")]
    pub machine: Vec<String>,
    /// Kernels of the tables, separated by commas: 3.0, 3.16-rc1, cfq600, fairzone, lessdirty, series,
    /// bigbatches, bigbatches1node, and those of `bonnie`
    #[arg(long, value_delimiter = ',', default_value = BASE, value_name = "NAME")]
    pub kernel: Vec<String>,
    /// Threads, separated by commas: each number is a run
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,
    /// What all files have together: twice the memory if simulated, or 256M
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub size: Option<usize>,
    /// Blocks anywhere that all threads write, and read
    #[arg(long, default_value_t = RANDOM, value_name = "N")]
    pub random: u64,
    /// Simulate this part of the machine: its memory and its files are divided by it
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub scale: u64,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print JSON, one object a run and line, instead of a table
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// Arguments of `zonal sparsetruncate`.
#[derive(Clone, Debug, Args)]
pub struct SparsetruncateArgs {
    /// The directory to run in; without one, a machine is simulated
    #[arg(conflicts_with_all = ["machine", "preset", "seed"])]
    pub directory: Option<PathBuf>,
    /// The simulated machine
    #[arg(long, default_value = freeing::MACHINE, value_name = "NAME")]
    pub machine: String,
    /// Presets to simulate, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "Linux413,Linux416,Zonal", value_name = "NAME",
          value_parser = preset_called)]
    pub preset: Vec<Preset>,
    /// Files
    #[arg(long, default_value_t = truncate::FILES, value_name = "N", requires = "directory",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub files: u32,
    /// Size of each
    #[arg(long, value_parser = parse_size, default_value = "4M", value_name = "SIZE",
          requires = "directory")]
    pub size: usize,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// Where files are simulated.
#[derive(Clone, Debug, Args)]
pub struct Simulated {
    /// The machine of the tables to simulate
    #[arg(long, default_value = "desktop", value_name = "NAME")]
    pub machine: String,
    /// Simulate this part of the machine: its memory and its files are divided by it
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub scale: u64,
}

/// Arguments of `zonal bonnie`.
#[derive(Clone, Debug, Args)]
pub struct BonnieArgs {
    /// The directory to run in; without one, a machine is simulated
    #[arg(conflicts_with_all = ["machine", "kernel", "scale"])]
    pub directory: Option<PathBuf>,
    /// Where it is simulated
    #[command(flatten)]
    pub simulated: Simulated,
    /// Kernels of the tables to simulate, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "base,one_irq", value_name = "NAME")]
    pub kernel: Vec<String>,
    /// Files
    #[arg(long, default_value_t = BONNIE_FILES, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub files: u32,
    /// Size of each: simulated, all together have twice the memory; in a directory they are empty
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub size: Option<usize>,
    /// Seed of the order that is none
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// Arguments of `zonal dbench`.
#[derive(Clone, Debug, Args)]
pub struct DbenchArgs {
    /// The directory to run in; without one, a machine is simulated
    #[arg(conflicts_with_all = ["machine", "kernel", "scale"])]
    pub directory: Option<PathBuf>,
    /// Where it is simulated
    #[command(flatten)]
    pub simulated: Simulated,
    /// Kernels of the tables to simulate, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "3.16-rc1,cfq600", value_name = "NAME")]
    pub kernel: Vec<String>,
    /// Clients, separated by commas: each number is a run
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: Vec<u32>,
    /// How long a run takes: 60s simulated, or 5s
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub duration: Option<Duration>,
    /// Print JSON, one object a run and line, instead of a table
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// Runs what was asked for and prints the results to `out`.
///
/// # Errors
///
/// [`IobenchError`], before anything is run where the arguments are at fault.
pub fn run(command: &Command, out: &mut dyn Write) -> Result<(), IobenchError> {
    match command {
        Command::Tiobench(args) => tiobench(args, out),
        Command::Sparsetruncate(args) => file_commands::sparsetruncate(args, out),
        Command::Bonnie(args) => file_commands::bonnie(args, out),
        Command::Dbench(args) => file_commands::dbench(args, out),
    }
}

/// A result: what it is of, and figures with their units.
pub(crate) struct Shown {
    pub(crate) of: Vec<(&'static str, Value)>,
    pub(crate) figures: Vec<(&'static str, f64, &'static str)>,
}

impl Shown {
    /// A result of real files in a directory.
    pub(crate) fn measured(directory: &Path, what: (&'static str, Value)) -> Self {
        let on = json!(directory.display().to_string());
        Self { of: vec![("on", on), ("kind", json!("measured")), what], figures: Vec::new() }
    }

    /// A result of a simulated machine under a kernel, or a preset.
    pub(crate) fn simulated(machine: &str, under: (&'static str, &str)) -> Self {
        let of =
            vec![("on", json!(machine)), ("kind", json!("simulated")), (under.0, json!(under.1))];
        Self { of, figures: Vec::new() }
    }

    /// With one thing more that it is of.
    pub(crate) fn of(mut self, name: &'static str, value: Value) -> Self {
        self.of.push((name, value));
        self
    }

    /// With figures.
    pub(crate) fn with(
        mut self,
        figures: impl IntoIterator<Item = (&'static str, f64, &'static str)>,
    ) -> Self {
        self.figures.extend(figures);
        self
    }
}

/// Prints results as a table, or each as a JSON object.
fn print(results: &[Shown], as_json: bool, out: &mut dyn Write) -> Result<(), IobenchError> {
    let Some(first) = results.first() else { return Ok(()) };
    if as_json {
        for result in results {
            let mut object = Map::new();
            object.extend(result.of.iter().map(|(name, value)| ((*name).into(), value.clone())));
            object.extend(result.figures.iter().map(|(name, it, _)| ((*name).into(), json!(it))));
            if let Ok(Value::Object(origin)) = serde_json::to_value(Provenance::of_this_run()) {
                object.extend(origin);
            }
            serde_json::to_writer(&mut *out, &object).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        return Ok(());
    }
    let mut table = Table::new(first.of.len());
    first.of.iter().for_each(|(name, _)| table.text(*name));
    first.figures.iter().for_each(|(name, _, unit)| table.number(*name, *unit));
    for result in results {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let of = result.of.iter().map(|(_, value)| text(value));
        let figures = result.figures.iter().map(|(_, value, _)| format!("{value:.2}"));
        table.row(of.chain(figures));
    }
    writeln!(out, "{table}")?;
    Ok(())
}

pub(crate) fn machine_called(name: &str, scale: u64) -> Result<Machine, IobenchError> {
    let machine = Machine::named(name).ok_or_else(|| {
        let known = MACHINES.map(|machine| machine.name).join(", ");
        IobenchError::UnknownMachine { name: name.into(), known }
    })?;
    Ok(Machine { frames: machine.frames / scale, ..machine })
}

pub(crate) fn kernel_called(name: &str) -> Result<Kernel, IobenchError> {
    Kernel::named(name).ok_or_else(|| {
        let known = KERNELS.map(|kernel| kernel.name).join(", ");
        IobenchError::UnknownKernel { name: name.into(), known }
    })
}

fn tiobench(args: &TiobenchArgs, out: &mut dyn Write) -> Result<(), IobenchError> {
    let program = |threads, pages| {
        let size = args.size.map_or(pages, |size| size as u64 / 4096);
        Tiobench { threads, pages: size.max(1), random: args.random, seed: args.seed }
    };
    let mut results = Vec::new();
    if let Some(directory) = &args.directory {
        let all = args.threads.len() as u64;
        let bar = Bar::new(all, args.no_progress);
        for threads in &args.threads {
            bar.at(results.len() as u64, all, &format!("{threads} threads"));
            let outcome = match measure(directory, &program(*threads, 1 << 16)) {
                // What was measured before is shown.
                Err(_) if interrupt::is_requested() => break,
                outcome => outcome?,
            };
            let shown = Shown::measured(directory, ("threads", json!(threads)));
            results.push(shown.with(rates(&outcome)));
        }
        drop(bar);
        return show(&results, args.json, out);
    }
    let machines = args.machine.iter().map(|name| machine_called(name, args.scale));
    let machines = machines.collect::<Result<Vec<_>, _>>()?;
    let kernels = args.kernel.iter().map(|name| kernel_called(name));
    let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
    let all = (machines.len() * kernels.len() * args.threads.len()) as u64;
    let bar = Bar::new(all, args.no_progress);
    for machine in machines {
        for kernel in &kernels {
            for threads in &args.threads {
                if interrupt::is_requested() {
                    break;
                }
                let next = format!("{}, {}, {threads} threads", machine.name, kernel.name);
                bar.at(results.len() as u64, all, &next);
                let tiobench = program(*threads, machine.frames * 2);
                let outcome = simulate(&Case { machine, kernel: *kernel, tiobench })?;
                let shown = Shown::simulated(machine.name, ("kernel", kernel.name));
                let shown = shown.of("threads", json!(threads)).with(rates(&outcome));
                results.push(shown.with(inside(&outcome)));
            }
        }
    }
    drop(bar);
    show(&results, args.json, out)
}

/// Prints what there is, also after Ctrl-C, which is told then.
pub(crate) fn show(results: &[Shown], json: bool, out: &mut dyn Write) -> Result<(), IobenchError> {
    if !results.is_empty() {
        print(results, json, out)?;
    }
    Ok(interrupt::outcome()?)
}

fn rates(outcome: &Outcome) -> Vec<(&'static str, f64, &'static str)> {
    Phase::ALL.map(|phase| (phase.name(), outcome.mib_s(phase), "MiB/s")).into()
}

/// What is seen on a simulated machine only.
fn inside(outcome: &Outcome) -> Vec<(&'static str, f64, &'static str)> {
    let read = outcome.phases[Phase::SeqRead as usize];
    let mut all = vec![
        ("SeqRead cached", read.hits as f64 * 100.0 / read.blocks.max(1) as f64, "%"),
        ("DMA32 of allocated", outcome.dma32_share(), "%"),
        ("DMA32 of scanned", outcome.dma32_scanned_share(), "%"),
    ];
    for metric in Metric::ALL {
        let unit = if metric == Metric::QueueLength { "requests" } else { "ms" };
        all.push((metric.name(), outcome.iostat.mean(metric), unit));
    }
    all
}

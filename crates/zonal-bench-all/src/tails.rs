//! `zonal bench tails`: single calls timed, on every preset and on peers.
//!
//! ```
//! use clap::Parser;
//! use zonal_bench_all::registry;
//! use zonal_bench_all::tails::{TailsLine, run};
//!
//! let line = "tails --memory 64M --calls 1000 --threads 1 --fill 80 --subjects zonal --json";
//! let args = TailsLine::parse_from(line.split(' ')).args;
//! let mut out = Vec::new();
//! run(&args, &registry::all(), &mut out)?;
//! assert!(String::from_utf8_lossy(&out).contains(r#""call":"refused""#));
//! # Ok::<(), zonal_cli::error::LabError>(())
//! ```

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Parser};
use serde::Serialize;
use zonal_bench::machine;
use zonal_bench::subjects::Entry;
use zonal_bench::tails::{Row, Spec};
use zonal_cli::bar::Bar;
use zonal_cli::error::LabError;
use zonal_cli::interrupt;
use zonal_cli::outfile::OutFile;
use zonal_cli::provenance::Provenance;
use zonal_cli::size::parse_size;
use zonal_cli::table::Table;
use zonal_cli::terminal;

use crate::aging::{choose, none_is_missing};

/// What names this part of `zonal bench`.
pub const ARGUMENT: &str = "tails";

/// A command line of it alone.
#[derive(Clone, Debug, Parser)]
#[command(name = "zonal bench tails", version, long_about = ABOUT)]
pub struct TailsLine {
    /// The arguments.
    #[command(flatten)]
    pub args: TailsArgs,
}

const ABOUT: &str = "How long single calls take, at the median and far out: blocks of orders 0, 3 and 9 \
come and go at random in memory that is as full as `--fill` says, each call timed by itself, then order 9 \
is refused.

What reading the clock takes is taken off. On a shared machine the longest calls are the machine's: \
compare subjects of one run. The longest hold is the most work in one hold of a zone's lock in the whole run, \
for subjects that count it. Rows are marked as disturbed if a thread lost its CPU while they were timed.";

/// Arguments of `zonal bench tails`.
#[derive(Clone, Debug, Args)]
pub struct TailsArgs {
    /// Per cent of the frames in use, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "50,90,99", value_name = "PERCENT",
          value_parser = clap::value_parser!(u8).range(1..=99))]
    pub fill: Vec<u8>,
    /// Thread counts, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Vec<u16>,
    /// Frames each subject manages, in bytes
    #[arg(long, value_parser = parse_size, default_value = "1G", value_name = "SIZE")]
    pub memory: usize,
    /// Blocks that each thread frees and allocates
    #[arg(long, default_value_t = 1_000_000, value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000_000))]
    pub calls: usize,
    /// Seed of all that is drawn
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub seed: u64,
    /// Presets and peers, separated by commas, as `zonal bench aging` takes them
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "Zonal,Linux416,bitmap-allocator",
        value_name = "NAME"
    )]
    pub subjects: Vec<String>,
    /// Print JSON lines instead of a table
    #[arg(long)]
    pub json: bool,
    /// Write JSON lines to a file, too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    workload: &'static str,
    subject: &'a str,
    #[serde(flatten)]
    spec: Spec,
    #[serde(flatten)]
    row: Row,
    note: &'static str,
    #[serde(flatten)]
    origin: &'a Provenance,
}

/// Times what `args` ask for and prints it to `out`, remarks to stderr.
///
/// # Errors
///
/// [`LabError`]; what was timed before an interruption is printed and in the file, and so are the others where one
/// that was named failed.
pub fn run(args: &TailsArgs, entries: &[Entry], out: &mut dyn Write) -> Result<(), LabError> {
    let chosen = choose(&args.subjects, entries)?;
    let cpus = machine::cpus().map_or(1, |cpus| cpus.len());
    if let Some(&asked) = args.threads.iter().find(|&&threads| usize::from(threads) > cpus) {
        return Err(LabError::TooManyThreads { asked: asked.into(), available: cpus });
    }
    let mut file = args.out.as_deref().map(OutFile::open).transpose()?;
    let cells =
        args.threads.iter().flat_map(|threads| args.fill.iter().map(move |fill| (threads, fill)));
    let runs: Vec<_> =
        cells.flat_map(|cell| chosen.iter().map(move |entry| (cell, entry))).collect();
    let (bar, mut lines) = (Bar::new(runs.len() as u64, args.no_progress), Vec::new());
    let mut failed = Vec::new();
    for (done, &((&threads, &fill), entry)) in runs.iter().enumerate() {
        // What was timed before is shown.
        if interrupt::is_requested() {
            break;
        }
        let (memory, seed, calls) = (args.memory, args.seed, args.calls);
        let spec = Spec { fill, threads: threads.into(), memory, seed, calls };
        let subject = entry.profile.name;
        let next = format!("{subject}, {fill} % full, {threads} threads");
        bar.at(done as u64, runs.len() as u64, &next);
        match entry.time(&spec) {
            Ok(rows) => {
                let (workload, origin) = (ARGUMENT, Provenance::of_this_run());
                let note = entry.profile.note;
                let line = |row| Line { workload, subject, spec, row, note, origin };
                lines.extend(rows.into_iter().map(line));
            }
            Err(error) => {
                bar.hide_while(|| writeln!(io::stderr(), "{subject}: {error}"))?;
                failed.push(subject);
            }
        }
    }
    drop(bar);
    if lines.is_empty() && interrupt::is_requested() {
        return Err(LabError::Interrupted);
    }
    if lines.is_empty() {
        return Err(LabError::NoResult { who: "any subject".into() });
    }
    let mut json = Vec::new();
    for line in &lines {
        json.extend(serde_json::to_vec(line).unwrap_or_default());
        json.push(b'\n');
    }
    if let Some(file) = &mut file {
        file.extend(&json)?;
    }
    if args.json {
        out.write_all(&json)?;
    } else {
        writeln!(out, "{}", table(&lines))?;
        notes(&lines, out)?;
    }
    interrupt::outcome()?;
    none_is_missing(&args.subjects, &failed)
}

/// What a reader of the subjects' rows must know.
fn notes(lines: &[Line<'_>], out: &mut dyn Write) -> io::Result<()> {
    let mut told: Vec<&str> = Vec::new();
    for &Line { subject, note, .. } in lines.iter().filter(|line| !line.note.is_empty()) {
        if !told.contains(&subject) {
            told.push(subject);
            writeln!(out, "{}", terminal::fold(&format!("  {subject}: {note}")))?;
        }
    }
    Ok(())
}

/// One table, the calls of a cell together, so that subjects stand beside each other.
fn table(lines: &[Line<'_>]) -> String {
    let mut table = Table::new(4);
    ["threads", "full", "call", "subject"].into_iter().for_each(|head| table.text(head));
    for head in ["p50", "p99", "p99.9", "max"] {
        table.number(head, "ns");
    }
    table.number("calls", "");
    table.number("longest hold", "frames");
    table.text("mark");
    let mut shown: Vec<&Line<'_>> = lines.iter().collect();
    let order =
        |line: &&Line<'_>| (line.spec.threads, line.spec.fill, line.row.order, line.row.call);
    shown.sort_by_key(order);
    for line in shown {
        let Row { call, order, times, p50, p99, p999, max, lost_cpu, hold_max } = &line.row;
        let mut cells = vec![
            line.spec.threads.to_string(),
            format!("{} %", line.spec.fill),
            format!("{call} {order}"),
            line.subject.to_owned(),
        ];
        cells.extend([p50, p99, p999, max].map(|time| format!("{time:.0}")));
        cells.push(times.to_string());
        cells.push(hold_max.map_or_else(String::new, |most| most.to_string()));
        cells.push(if *lost_cpu { "disturbed" } else { "" }.to_owned());
        table.row(cells);
    }
    table.fit(terminal::width())
}

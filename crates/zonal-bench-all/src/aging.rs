//! `zonal bench aging`: cells of it on every preset and on peers, kept and gone on with.
//!
//! ```
//! use clap::Parser;
//! use zonal_bench_all::aging::{AgingLine, run};
//! use zonal_bench_all::registry;
//!
//! let line = "aging --memory 64M --rounds 2 --mix batches --subjects zonal --json";
//! let args = AgingLine::parse_from(line.split(' ')).args;
//! let mut out = Vec::new();
//! run(&args, &registry::all(), &mut out)?;
//! assert!(String::from_utf8_lossy(&out).contains(r#""subject":"Zonal""#));
//! # Ok::<(), zonal_cli::error::LabError>(())
//! ```

mod picture;
mod table;

use core::num::NonZeroU32;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Parser};
use serde::{Deserialize, Serialize};
use zonal_bench::aging::{Mix, Row, Spec};
use zonal_bench::subject::Group;
use zonal_bench::subjects::{Entry, names};
use zonal_cli::bar::Bar;
use zonal_cli::error::LabError;
use zonal_cli::interrupt;
use zonal_cli::outfile::OutFile;
use zonal_cli::provenance::Provenance;
use zonal_cli::size::parse_size;
use zonal_scenario::preset::is_called;

/// What names this part of `zonal bench`.
pub const ARGUMENT: &str = "aging";

/// A command line of it alone.
#[derive(Clone, Debug, Parser)]
#[command(name = "zonal bench aging", version, long_about = ABOUT)]
pub struct AgingLine {
    /// The arguments.
    #[command(flatten)]
    pub args: AgingArgs,
}

const ABOUT: &str = "How whole free memory stays while blocks come and go for rounds: the index of \
unusable free memory (0 right after boot), worked out from what is allocated and, for presets, from \
what they report, in which frames in caches are not free.

A cell is a mix, a fill, a number of CPUs and a size; each is run for every seed and subject.";

/// Arguments of `zonal bench aging`.
#[derive(Clone, Debug, Args)]
pub struct AgingArgs {
    /// What is allocated, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Mix::ALL)]
    pub mix: Vec<Mix>,
    /// Per cent of the frames in use, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "85", value_name = "PERCENT",
          value_parser = clap::value_parser!(u8).range(1..=99))]
    pub fill: Vec<u8>,
    /// CPUs that allocate and free, driven in turn by one thread, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "2", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=255))]
    pub cpus: Vec<u16>,
    /// Frames each subject manages, in bytes, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = parse_size, default_value = "1G",
          value_name = "SIZE")]
    pub memory: Vec<usize>,
    /// Seeds, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "SEED")]
    pub seed: Vec<u64>,
    /// Rounds, each of which allocates half the memory
    #[arg(long, default_value_t = 60, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
    /// Regions of a zone in which CPUs begin to look, of presets that have such; by CPUs if not given
    #[arg(long, value_name = "N")]
    pub regions: Option<NonZeroU32>,
    /// Presets and peers, separated by commas; in any case, with or without dashes; `all` for every
    /// preset, and every peer that has blocks of order 9 and a fixed set of frames
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
    /// Write JSON lines to a file. Runs that it has already are not made again
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Draw pageblocks by free frames over the rounds, the subjects beside each other, for the first
    /// cell and seed, as SVG
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// A run, as a line of JSON has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Who.
    pub subject: String,
    /// The cell and the seed.
    #[serde(flatten)]
    pub spec: Spec,
    /// What came of it.
    #[serde(flatten)]
    pub row: Row,
}

impl Line {
    fn is_of(&self, subject: &str, spec: &Spec) -> bool {
        self.subject == subject && self.spec == *spec
    }
}

#[derive(Serialize)]
struct Printed<'a> {
    workload: &'static str,
    #[serde(flatten)]
    line: &'a Line,
    #[serde(flatten)]
    origin: &'a Provenance,
}

impl AgingArgs {
    /// The runs for a subject, cell by cell, each once.
    #[must_use]
    pub fn specs(&self) -> Vec<Spec> {
        let mut specs = Vec::new();
        for &memory in &self.memory {
            for &cpus in &self.cpus {
                for &fill in &self.fill {
                    for &mix in &self.mix {
                        let spec = |&seed: &u64| {
                            let cpus = usize::from(cpus);
                            let (rounds, regions) = (self.rounds, self.regions);
                            Spec { mix, fill, cpus, memory, seed, rounds, regions }
                        };
                        for spec in self.seed.iter().map(spec) {
                            if !specs.contains(&spec) {
                                specs.push(spec);
                            }
                        }
                    }
                }
            }
        }
        specs
    }
}

/// The entries that were named, each once, of those that have blocks of order 9 and a fixed set of frames.
///
/// # Errors
///
/// [`LabError::UnknownSubject`].
pub fn choose<'a>(named: &[String], entries: &'a [Entry]) -> Result<Vec<&'a Entry>, LabError> {
    let aged = || entries.iter().filter(|entry| entry.ages());
    let mut chosen: Vec<&Entry> = Vec::new();
    for name in named {
        let is = |entry: &&Entry| is_called("all", name) || is_called(entry.profile.name, name);
        let found: Vec<_> = aged().filter(is).collect();
        if found.is_empty() {
            let known: Vec<_> = aged().map(|entry| (entry.profile.name, Group::Zonal)).collect();
            let (name, known) = (name.clone(), names(&known, |_| true));
            return Err(LabError::UnknownSubject { name, known });
        }
        for entry in found {
            if !chosen.iter().any(|known| known.profile.name == entry.profile.name) {
                chosen.push(entry);
            }
        }
    }
    Ok(chosen)
}

/// Whether none that `failed` was named: `all` asks for those that can.
///
/// # Errors
///
/// [`LabError::NoResult`].
pub fn none_is_missing(named: &[String], failed: &[&str]) -> Result<(), LabError> {
    let is_named = |subject: &&str| named.iter().any(|name| is_called(subject, name));
    let mut missing: Vec<&str> = Vec::new();
    for &subject in failed.iter().filter(|subject| is_named(subject)) {
        if !missing.contains(&subject) {
            missing.push(subject);
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(LabError::NoResult { who: missing.join(", ") }) }
}

/// Runs the cells that `args` ask for and prints them to `out`, remarks to stderr.
///
/// # Errors
///
/// [`LabError`]; what was measured before an interruption is printed, and before a failure, too, in
/// the file; what the others came to is, where one that was named failed.
pub fn run(args: &AgingArgs, entries: &[Entry], out: &mut dyn Write) -> Result<(), LabError> {
    let (specs, chosen) = (args.specs(), choose(&args.subjects, entries)?);
    let picture = args.picture.as_deref().map(OutFile::open).transpose()?;
    let (mut made, before) = args.out.as_deref().map(kept).transpose()?.unwrap_or_default();
    let mut file = args.out.as_deref().map(OutFile::open).transpose()?;
    if let Some(file) = file.as_mut().filter(|_| !before.is_empty()) {
        file.extend(&before)?;
    }
    let all = specs.len() * chosen.len();
    let (bar, start, mut now) = (Bar::of_time(args.no_progress), Instant::now(), 0_u32);
    let (mut shown, mut failed) = (Vec::new(), Vec::new());
    let runs = specs.iter().flat_map(|spec| chosen.iter().map(move |entry| (spec, entry)));
    for (done, (spec, entry)) in runs.enumerate() {
        let subject = entry.profile.name;
        if !made.iter().any(|run| run.line.is_of(subject, spec)) {
            if interrupt::is_requested() {
                break;
            }
            let next = format!("{subject}, {}, seed {}", spec.mix, spec.seed);
            match now {
                // How long a run takes is not known yet.
                0 => bar.at(0, all as u64, &next),
                _ => {
                    let a_run = start.elapsed() / now;
                    bar.time(start.elapsed(), a_run * (all - done) as u32, &next);
                }
            }
            match entry.age(spec) {
                Ok(row) => {
                    let run = Run::of_now(Line { subject: subject.into(), spec: *spec, row });
                    if let Some(file) = &mut file {
                        file.extend(run.text.as_bytes())?;
                    }
                    made.push(run);
                }
                Err(error) => {
                    bar.hide_while(|| writeln!(io::stderr(), "{subject}: {error}"))?;
                    failed.push(subject);
                    continue;
                }
            }
            now += 1;
        }
        shown.extend(made.iter().find(|run| run.line.is_of(subject, spec)).cloned());
    }
    drop(bar);
    if shown.is_empty() {
        let nothing = LabError::NoResult { who: "any subject".into() };
        return Err(if interrupt::is_requested() { LabError::Interrupted } else { nothing });
    }
    // A picture of a part would replace that of all.
    if let (Some(file), Some(spec), false) = (picture, specs.first(), interrupt::is_requested()) {
        file.replace(picture::draw(&lines(&shown), spec)?.as_bytes())?;
    }
    if args.json {
        shown.iter().try_for_each(|run| out.write_all(run.text.as_bytes()))?;
    } else {
        write!(out, "{}", table::text(&lines(&shown)))?;
    }
    interrupt::outcome()?;
    none_is_missing(&args.subjects, &failed)
}

fn lines(runs: &[Run]) -> Vec<Line> {
    runs.iter().map(|run| run.line.clone()).collect()
}

/// A run and its line of JSON, which says when and where it was made.
#[derive(Clone)]
struct Run {
    line: Line,
    text: String,
}

impl Run {
    fn of_now(line: Line) -> Self {
        let origin = Provenance::of_this_run();
        let printed = Printed { workload: ARGUMENT, line: &line, origin };
        let text = serde_json::to_string(&printed).unwrap_or_default() + "\n";
        Self { line, text }
    }
}

/// The runs that a file has already, and all that is in it: lines of others are kept as they are.
fn kept(path: &Path) -> Result<(Vec<Run>, Vec<u8>), LabError> {
    // A device or a pipe has none.
    if !path.metadata().is_ok_and(|it| it.is_file()) {
        return Ok((Vec::new(), Vec::new()));
    }
    let unreadable = |source| LabError::Unwritable { path: path.into(), source };
    let mut content = fs::read(path).map_err(unreadable)?;
    if content.last().is_some_and(|&last| last != b'\n') {
        content.push(b'\n');
    }
    let text = String::from_utf8_lossy(&content);
    let read =
        |line| Some(Run { line: serde_json::from_str(line).ok()?, text: format!("{line}\n") });
    Ok((text.lines().filter_map(read).collect(), content))
}

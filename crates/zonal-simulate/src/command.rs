//! `zonal sim`: a workload on a simulated machine.
//!
//! The result of a run is its figures (what was done, by name and unit) and its spins (waiting
//! for each class of locks, in percent of the cycles of all CPUs at work, by what the CPU was
//! doing). `--profile` adds where the cycles went: lock by lock, and by class of cache lines.
//!
//! In JSON a run is one object. Its figures and spins are members of it, called as in the tables
//! of published numbers: `faults_per_s`, `zone_lock_spin`, `zone_lock_spin_alloc`. They are also in
//! its `rows`, with their units, called as in the rows of `zonal reproduce`: `metric`, `simulated`,
//! `unit`; as there, `kernel` is the preset. Locks and lines are in `locks` and `lines`.
//!
//! In CSV each number is a line of its own: `machine,workload,kernel,metric,value,unit` and what
//! else tells runs apart. With `--profile` there are `locks.zone.0.waited`, `lines.frames.near` and
//! so on.
//!
//! ```
//! use clap::Parser;
//! use zonal_simulate::{Cli, Command};
//!
//! let line = "zonal sim skylake_2s_112cpu page-fault1 --preset skip-merge,zonal --tasks 56,112";
//! let Command::Sim(args) = Cli::parse_from(line.split(' ')).command;
//! assert_eq!(args.counts(), [56, 112]);
//! ```

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use zonal_sim::machine::{Machine, TEMPLATE};
use zonal_sim::outcome::Outcome;
use zonal_sim::run::{LruLock, Preset, Spec, Workload};

use crate::chart::{Line, chart};
use crate::error::SimulateError;
use crate::list;
use crate::runs::{Job, Pool, RunError, Runner, Simulator, machine_called};
use crate::tasks::Tasks;
use zonal_cli::error::LabError;
use zonal_cli::outfile::OutFile;
use zonal_cli::provenance::Provenance;
use zonal_cli::table::Table;
use zonal_scenario::preset::preset_called;

/// Arguments of `zonal sim`.
#[derive(Clone, Debug, Args)]
pub struct SimArgs {
    /// The machine: the name of one that is built in, or a file
    #[arg(required_unless_present_any = ["list", "template"])]
    pub machine: Option<String>,
    /// What its CPUs do
    #[arg(value_parser = workload_parser(), required_unless_present_any = ["list", "template"])]
    pub workload: Option<Workload>,
    /// List machines, workloads and presets
    #[arg(long, conflicts_with_all = ["machine", "template"])]
    pub list: bool,
    /// Print a machine file to begin with, every field of which is described
    #[arg(long, conflicts_with = "machine")]
    pub template: bool,
    /// Presets, separated by commas; every one if not given
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = preset_called)]
    pub preset: Vec<Preset>,
    /// Tasks, each on a CPU of its own, separated by commas; one for each CPU if not given. A..B is
    /// both ends and the powers of two between, A..B:STEP every STEP
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub tasks: Vec<Tasks>,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The lock of the LRU lists
    #[arg(long, default_value = "node")]
    pub lru: LruArg,
    /// stress-highalloc: pause between requests, in ms
    #[arg(long, default_value_t = 0, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub delay_ms: u32,
    /// Measure a shorter stretch: less exact, several times faster
    #[arg(long)]
    pub quick: bool,
    /// Print JSON, one object a run and line, instead of tables
    #[arg(long)]
    pub json: bool,
    /// Also write the results to this file as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also print where the cycles go, by lock and by class of cache lines, and write it to --csv
    #[arg(long)]
    pub profile: bool,
    /// Runs at a time; one for each CPU of this machine if not given
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub jobs: usize,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

impl SimArgs {
    /// The numbers of tasks, each once, in their order.
    #[must_use]
    pub fn counts(&self) -> Vec<u32> {
        let mut counts = Vec::new();
        for tasks in self.tasks.iter().flat_map(|tasks| &tasks.0) {
            if !counts.contains(tasks) {
                counts.push(*tasks);
            }
        }
        counts
    }
}

/// The workload that `--delay-ms` is for.
const PAUSES: Workload = Workload::StressHighalloc;

/// What `--lru` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LruArg {
    /// One lock for each node, as in the sources' kernels
    Node,
    /// One for each CPU's pages: what a fix would do
    Split,
    /// None: each CPU lists its own pages, and no CPU takes or waits for a lock
    None,
}

impl From<LruArg> for LruLock {
    fn from(arg: LruArg) -> Self {
        match arg {
            LruArg::Node => Self::Node,
            LruArg::Split => Self::Split,
            LruArg::None => Self::None,
        }
    }
}

/// The name of a kind of LRU lock, as `--lru` takes it.
fn lru_name(lru: LruLock) -> &'static str {
    match lru {
        LruLock::Node => "node",
        LruLock::Split => "split",
        LruLock::None => "none",
    }
}

/// Takes a workload's name; clap lists them all in the help and for one it does not know.
fn workload_parser() -> impl clap::builder::TypedValueParser<Value = Workload> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    let names = Workload::ALL.iter().map(|workload| PossibleValue::new(workload.name()));
    PossibleValuesParser::new(names).map(|name| {
        let named = Workload::ALL.into_iter().find(|workload| workload.name() == name);
        named.unwrap_or(Workload::PageFault1)
    })
}

/// Runs what `args` ask for and prints the results to `out`, remarks to stderr.
///
/// # Errors
///
/// [`SimulateError`], before anything is run where the arguments are at fault.
pub fn run(args: &SimArgs, out: &mut dyn Write) -> Result<(), SimulateError> {
    run_on(&Simulator, args, out)
}

/// [`run`] on something else than the simulator.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(
    runner: &impl Runner,
    args: &SimArgs,
    out: &mut dyn Write,
) -> Result<(), SimulateError> {
    if args.template {
        return Ok(out.write_all(TEMPLATE.as_bytes())?);
    }
    let (Some(machine), Some(workload)) = (&args.machine, args.workload) else {
        return Ok(list::print(runner, out)?);
    };
    let machine = Arc::new(machine_called(runner, machine)?);
    let specs = specs(args, workload, &machine)?;
    specs.iter().try_for_each(|spec| runner.check(&machine, spec))?;
    let csv = args.csv.as_deref().map(OutFile::open).transpose()?;
    let jobs: Vec<Job> =
        specs.iter().map(|spec| Job { machine: Arc::clone(&machine), spec: *spec }).collect();
    let results = Pool::new(args.jobs, args.no_progress).carry_out(runner, &jobs)?;
    let mut done = Vec::new();
    let mut failed = Vec::new();
    let mut interrupted = false;
    for (spec, result) in specs.iter().zip(results) {
        match result {
            Ok(outcome) => done.push((*spec, outcome)),
            Err(RunError::Interrupted) => interrupted = true,
            Err(error) => {
                let who = format!("{} on {} CPUs", spec.preset.name(), spec.tasks);
                writeln!(io::stderr(), "{who} failed in {}: {error}", spec.workload)?;
                failed.push(who);
            }
        }
    }
    if args.json {
        for (spec, outcome) in &done {
            serde_json::to_writer(&mut *out, &object(spec, outcome)).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    } else if !done.is_empty() {
        print(args, workload, &machine, &done, out)?;
    }
    if let Some(file) = csv.filter(|_| !done.is_empty()) {
        file.replace(&csv_of(args, &done)?)?;
    }
    if interrupted {
        return Err(LabError::Interrupted.into());
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(LabError::NoResult { who: failed.join(", ") }.into())
    }
}

fn specs(
    args: &SimArgs,
    workload: Workload,
    machine: &Machine,
) -> Result<Vec<Spec>, SimulateError> {
    if args.delay_ms > 0 && workload != PAUSES {
        let (option, of) = ("--delay-ms", PAUSES.name());
        return Err(LabError::OptionDoesNotApply { option, workload: workload.name(), of }.into());
    }
    let all = machine.topology.cpus();
    let counts = if args.tasks.is_empty() { vec![all] } else { args.counts() };
    let chosen = if args.preset.is_empty() { Preset::ALL.to_vec() } else { args.preset.clone() };
    let each = chosen.iter().flat_map(|preset| {
        counts.iter().map(|tasks| Spec {
            workload,
            preset: *preset,
            tasks: *tasks,
            seed: args.seed,
            lru: args.lru.into(),
            quick: args.quick,
            delay_ms: args.delay_ms,
        })
    });
    Ok(each.collect())
}

/// The spins of an outcome in percent of its cycles, with the names of the published tables: of
/// each class of locks, and of each thing CPUs did while they waited.
#[must_use]
pub fn spins(outcome: &Outcome) -> Vec<(String, f64)> {
    // Both are in every run's results, waited for or not.
    let mut classes = vec!["zone", "lru"];
    for spin in &outcome.spins {
        if !classes.contains(&spin.lock) {
            classes.push(spin.lock);
        }
    }
    let mut named: Vec<(String, f64)> = Vec::new();
    for class in classes {
        named.push((format!("{class}_lock_spin"), outcome.spin_percent(class)));
        for during in ["alloc", "free", "other"] {
            let waited =
                outcome.spins.iter().any(|spin| (spin.lock, spin.during) == (class, during));
            if waited || (class == "zone" && during != "other") {
                let percent = outcome.spin_percent_during(class, during);
                named.push((format!("{class}_lock_spin_{during}"), percent));
            }
        }
    }
    named
}

/// A run as a JSON object.
fn object(spec: &Spec, outcome: &Outcome) -> Value {
    let mut object = Map::new();
    object.insert("machine".into(), json!(outcome.machine));
    object.insert("workload".into(), json!(outcome.workload));
    object.insert("preset".into(), json!(outcome.preset));
    object.insert("kernel".into(), json!(outcome.preset));
    object.insert("tasks".into(), json!(outcome.tasks));
    object.insert("seed".into(), json!(outcome.seed));
    object.insert("lru".into(), json!(lru_name(spec.lru)));
    object.insert("quick".into(), json!(spec.quick));
    object.insert("delay_ms".into(), json!(spec.delay_ms));
    object.insert("cycles".into(), json!(outcome.cycles));
    object.insert("seconds".into(), json!(outcome.seconds));
    let row = |(metric, simulated, unit)| json!({ "metric": metric, "simulated": simulated, "unit": unit });
    object.insert("rows".into(), metrics(outcome).map(row).collect());
    for (name, value, _) in metrics(outcome) {
        object.insert(name, json!(value));
    }
    object.insert("locks".into(), json!(outcome.locks));
    object.insert("lines".into(), json!(outcome.lines));
    if let Ok(Value::Object(origin)) = serde_json::to_value(Provenance::of_this_run()) {
        object.extend(origin);
    }
    Value::Object(object)
}

/// Figures and spins, with their units.
fn metrics(outcome: &Outcome) -> impl Iterator<Item = (String, f64, &'static str)> {
    let figures = outcome.figures.iter().map(|it| (it.name.clone(), it.value, it.unit));
    figures.chain(spins(outcome).into_iter().map(|(name, it)| (name, it, "percent_cycles")))
}

/// Where the cycles go, a number at a time, with the names that they have in JSON.
fn profile(outcome: &Outcome) -> Vec<(String, f64, &'static str)> {
    let mut all = vec![
        ("cycles".to_owned(), outcome.cycles as f64, "cycles"),
        ("seconds".to_owned(), outcome.seconds, "s"),
    ];
    for lock in &outcome.locks {
        let mut add = |name, value: u64, unit| {
            all.push((format!("locks.{}.{}.{name}", lock.class, lock.index), value as f64, unit));
        };
        add("taken", lock.taken, "count");
        add("contended", lock.contended, "count");
        add("waited", lock.waited, "cycles");
        add("held", lock.held, "cycles");
        add("transferred", lock.transferred, "cycles");
    }
    for line in &outcome.lines {
        let mut add = |name, value: u64, unit| {
            all.push((format!("lines.{}.{name}", line.class), value as f64, unit));
        };
        add("private", line.private, "count");
        add("shared", line.shared, "count");
        add("near", line.near, "count");
        add("far", line.far, "count");
        add("memory", line.memory, "count");
        add("streamed", line.streamed, "count");
        add("cycles", line.cycles, "cycles");
    }
    all
}

fn csv_of(args: &SimArgs, done: &[(Spec, Outcome)]) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "machine", "workload", "kernel", "tasks", "lru", "seed", "quick", "delay_ms", "metric",
        "value", "unit",
    ])?;
    for (spec, outcome) in done {
        let profile = if args.profile { profile(outcome) } else { Vec::new() };
        for (metric, value, unit) in metrics(outcome).chain(profile) {
            writer.write_record([
                &*outcome.machine,
                &*outcome.workload,
                &*outcome.preset,
                &*outcome.tasks.to_string(),
                lru_name(spec.lru),
                &*outcome.seed.to_string(),
                &*spec.quick.to_string(),
                &*spec.delay_ms.to_string(),
                &*metric,
                &*value.to_string(),
                unit,
            ])?;
        }
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

/// A figure, with as many digits as it has worth: all of a count, three or so of the rest.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        medium if medium >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

fn print(
    args: &SimArgs,
    workload: Workload,
    machine: &Machine,
    done: &[(Spec, Outcome)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let (lru, seed) = (lru_name(args.lru.into()), args.seed);
    write!(out, "{}: {workload}, LRU lock: {lru}, seed {seed}", machine.title)?;
    if workload == PAUSES {
        write!(out, ", {} ms between requests", args.delay_ms)?;
    }
    writeln!(out, "{}", if args.quick { ", quick" } else { "" })?;
    writeln!(out, "{}", results(done))?;
    if let Some(chart) = scaling(done) {
        writeln!(out, "\n{chart}\n")?;
    }
    writeln!(
        out,
        "... lock spin: waiting for that class of locks, in % of the cycles of all CPUs at work."
    )?;
    if args.profile {
        for (spec, outcome) in done {
            writeln!(out, "\n{} on {} CPUs:", spec.preset.name(), spec.tasks)?;
            writeln!(out, "{}\n{}", locks(outcome), lines(outcome))?;
        }
        writeln!(
            out,
            "% : of the cycles of all CPUs at work; the lock of a class waited for longest has a line of its own."
        )?;
    }
    out.flush()
}

/// A chart of the first figure over the tasks, if there are three numbers of them or more.
fn scaling(done: &[(Spec, Outcome)]) -> Option<String> {
    let mut tasks: Vec<u32> = done.iter().map(|(spec, _)| spec.tasks).collect();
    tasks.sort_unstable();
    tasks.dedup();
    let figure = done.first()?.1.figures.first()?;
    let mut presets: Vec<Preset> = Vec::new();
    for (spec, _) in done {
        if !presets.contains(&spec.preset) {
            presets.push(spec.preset);
        }
    }
    let value = |preset: Preset, tasks: u32| {
        let run = done.iter().find(|(spec, _)| (spec.preset, spec.tasks) == (preset, tasks));
        run.and_then(|(_, outcome)| outcome.figure(&figure.name))
    };
    let line = |preset: &Preset| Line {
        name: preset.name().to_owned(),
        values: tasks.iter().map(|tasks| value(*preset, *tasks)).collect(),
    };
    let lines: Vec<Line> = presets.iter().map(line).collect();
    let name = figure.name.replace('_', " ");
    (tasks.len() > 2).then(|| chart(&name, figure.unit, &tasks, &lines))
}

/// The table of figures and spins, a run a line.
fn results(done: &[(Spec, Outcome)]) -> Table {
    let mut metrics: Vec<(String, &'static str)> = Vec::new();
    for (_, outcome) in done {
        let figures = outcome.figures.iter().map(|figure| (figure.name.clone(), figure.unit));
        let spins = spins(outcome).into_iter().map(|(name, _)| (name, "%"));
        for metric in figures.chain(spins) {
            if !metrics.contains(&metric) {
                metrics.push(metric);
            }
        }
    }
    let mut table = Table::new(2);
    table.text("preset");
    table.number("tasks", "");
    for (name, unit) in &metrics {
        table.number(name.replace('_', " "), *unit);
    }
    for (spec, outcome) in done {
        let spins = spins(outcome);
        let cells = metrics.iter().map(|(name, _)| {
            let spin = || spins.iter().find(|(spin, _)| spin == name).map(|(_, percent)| *percent);
            outcome.figure(name).or_else(spin).map_or(String::new(), number)
        });
        let own = [spec.preset.name().to_owned(), spec.tasks.to_string()];
        table.row(own.into_iter().chain(cells));
    }
    table
}

/// Locks by class, and the one of each class that was waited for longest.
fn locks(outcome: &Outcome) -> Table {
    let mut table = Table::new(1);
    table.text("lock");
    table.number("taken", "times");
    table.number("contended", "times");
    for head in ["waited", "held", "transferred"] {
        table.number(head, "% cycles");
    }
    let percent = |cycles: u64| {
        let part = cycles as f64 * 100.0 / outcome.cycles.max(1) as f64;
        format!("{part:.2}")
    };
    let mut classes: Vec<&str> = outcome.locks.iter().map(|lock| lock.class).collect();
    classes.sort_unstable();
    classes.dedup();
    for class in classes {
        let all: Vec<_> = outcome.locks.iter().filter(|lock| lock.class == class).collect();
        let worst = all.iter().max_by_key(|lock| (lock.waited, core::cmp::Reverse(lock.index)));
        let named =
            if all.len() == 1 { class.to_owned() } else { format!("{class} × {}", all.len()) };
        let mut line = |name: String, of: &[&zonal_sim::outcome::LockProfile]| {
            table.row([
                name,
                of.iter().map(|lock| lock.taken).sum::<u64>().to_string(),
                of.iter().map(|lock| lock.contended).sum::<u64>().to_string(),
                percent(of.iter().map(|lock| lock.waited).sum()),
                percent(of.iter().map(|lock| lock.held).sum()),
                percent(of.iter().map(|lock| lock.transferred).sum()),
            ]);
        };
        line(named, &all);
        if let Some(worst) = worst.filter(|lock| all.len() > 1 && lock.waited > 0) {
            line(format!("  {class} {}", worst.index), &[worst]);
        }
    }
    table
}

/// Cache lines by class: where accesses were served from, and their cycles.
fn lines(outcome: &Outcome) -> Table {
    let mut table = Table::new(1);
    table.text("lines");
    for head in ["private", "shared", "near", "far", "memory", "streamed"] {
        table.number(head, "");
    }
    table.number("cost", "% cycles");
    for line in &outcome.lines {
        let part = line.cycles as f64 * 100.0 / outcome.cycles.max(1) as f64;
        let counts = [line.private, line.shared, line.near, line.far, line.memory, line.streamed];
        let counts = counts.map(|count| count.to_string());
        let own = [line.class.to_owned()];
        table.row(own.into_iter().chain(counts).chain([format!("{part:.2}")]));
    }
    table
}

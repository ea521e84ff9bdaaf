//! The results of runs for people: tables, and a chart where the number of tasks varies.

use std::io::{self, Write};

use zonal_cli::table::Table;
use zonal_sim::machine::Machine;
use zonal_sim::outcome::Outcome;
use zonal_sim::run::{LruLock, Spec, Workload};

use crate::chart::{Line, chart};
use crate::command::{PAUSES, SimArgs};
use crate::records::spins;

/// A figure, with as many digits as it has worth: all of a count, three or so of the rest.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        medium if medium >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Prints what `done` showed; where the cycles went with `--profile`.
pub(crate) fn print(
    args: &SimArgs,
    workload: Workload,
    machine: &Machine,
    done: &[(Spec, Outcome)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let (kinds, seed) = (locks_of(done), args.seed);
    let lru = kinds.iter().map(|lru| lru.name()).collect::<Vec<_>>().join(", ");
    write!(out, "{}: {workload}, LRU lock: {lru}, seed {seed}", machine.title)?;
    if workload == PAUSES {
        write!(out, ", {} ms between requests", args.delay_ms)?;
    }
    if let Some(after) = args.after {
        write!(out, ", after {after} million single pages")?;
    }
    if let Some(regions) = args.regions {
        write!(out, ", regions: {regions}")?;
    }
    writeln!(out, "{}", if args.quick { ", quick" } else { "" })?;
    writeln!(out, "{}", results(done))?;
    for (spec, outcome) in done {
        off(spec, outcome, out)?;
    }
    if let Some(chart) = scaling(done) {
        writeln!(out, "\n{chart}\n")?;
    }
    writeln!(
        out,
        "... lock spin: waiting for that class of locks, in % of the cycles of all CPUs at work."
    )?;
    if args.profile {
        for (spec, outcome) in done {
            writeln!(out, "\n{} on {} CPUs:", name_of(spec, &kinds), spec.tasks)?;
            off(spec, outcome, out)?;
            writeln!(out, "{}\n{}", locks(outcome), lines(outcome))?;
        }
        writeln!(
            out,
            "% : of the cycles of all CPUs at work; the lock of a class waited for longest has a line of its own."
        )?;
    }
    out.flush()
}

/// The kinds of LRU locks of some runs.
fn locks_of(done: &[(Spec, Outcome)]) -> Vec<LruLock> {
    let mut locks = Vec::new();
    for (spec, _) in done {
        if !locks.contains(&spec.lru) {
            locks.push(spec.lru);
        }
    }
    locks
}

/// The preset of a run, with its LRU lock where there are several kinds.
fn name_of(spec: &Spec, locks: &[LruLock]) -> String {
    match locks {
        [_] => spec.preset.name().to_owned(),
        _ => format!("{}, LRU {}", spec.preset.name(), spec.lru.name()),
    }
}

/// A line for each mechanism that is off.
fn off(spec: &Spec, outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let (preset, tasks) = (spec.preset.name(), spec.tasks);
    outcome.off.iter().try_for_each(|it| writeln!(out, "off, {preset} on {tasks} CPUs: {it}"))
}

/// A chart of the first figure over the tasks, if there are three numbers of them or more.
fn scaling(done: &[(Spec, Outcome)]) -> Option<String> {
    let mut tasks: Vec<u32> = done.iter().map(|(spec, _)| spec.tasks).collect();
    tasks.sort_unstable();
    tasks.dedup();
    let figure = done.first()?.1.figures.first()?;
    let locks = locks_of(done);
    let mut kinds: Vec<&Spec> = Vec::new();
    let alike = |one: &Spec, other: &Spec| (one.preset, one.lru) == (other.preset, other.lru);
    for (spec, _) in done {
        if !kinds.iter().any(|known| alike(known, spec)) {
            kinds.push(spec);
        }
    }
    let value = |kind: &Spec, tasks: u32| {
        let run = done.iter().find(|(spec, _)| alike(spec, kind) && spec.tasks == tasks);
        run.and_then(|(_, outcome)| outcome.figure(&figure.name))
    };
    let line = |kind: &&Spec| Line {
        name: name_of(kind, &locks),
        values: tasks.iter().map(|tasks| value(kind, *tasks)).collect(),
    };
    let lines: Vec<Line> = kinds.iter().map(line).collect();
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
    let locks = locks_of(done);
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
        let own = [name_of(spec, &locks), spec.tasks.to_string()];
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
    table.number("waited", "% cycles");
    table.number("cost", "% cycles");
    for line in &outcome.lines {
        let part = |cycles| cycles as f64 * 100.0 / outcome.cycles.max(1) as f64;
        let counts = [line.private, line.shared, line.near, line.far, line.memory, line.streamed];
        let counts = counts.map(|count| count.to_string());
        let own = [line.class.to_owned()];
        let parts = [line.queued, line.cycles].map(|cycles| format!("{:.2}", part(cycles)));
        table.row(own.into_iter().chain(counts).chain(parts));
    }
    table
}

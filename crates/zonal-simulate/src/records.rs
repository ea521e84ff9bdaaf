//! The results of runs for programs: JSON and CSV.

use core::num::NonZeroU32;
use std::io;

use serde_json::{Map, Value, json};
use zonal_cli::provenance::Provenance;
use zonal_sim::outcome::Outcome;
use zonal_sim::run::Spec;

use crate::command::SimArgs;

/// The spins of an outcome in percent of its cycles, with the names of the published tables: of
/// each class of locks, and of each thing CPUs did while they waited; and of the allocator's lines.
pub(crate) fn spins(outcome: &Outcome) -> Vec<(String, f64)> {
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
    named.push(("line_wait".into(), outcome.line_percent()));
    named
}

/// A run as a JSON object.
pub(crate) fn object(spec: &Spec, outcome: &Outcome) -> Value {
    let mut object = Map::new();
    object.insert("machine".into(), json!(outcome.machine));
    object.insert("workload".into(), json!(outcome.workload));
    object.insert("preset".into(), json!(outcome.preset));
    object.insert("kernel".into(), json!(outcome.preset));
    object.insert("tasks".into(), json!(outcome.tasks));
    object.insert("seed".into(), json!(outcome.seed));
    object.insert("lru".into(), json!(spec.lru.name()));
    object.insert("quick".into(), json!(spec.quick));
    object.insert("delay_ms".into(), json!(spec.delay_ms));
    object.insert("after".into(), json!(spec.after));
    object.insert("regions".into(), json!(spec.regions));
    object.insert("cycles".into(), json!(outcome.cycles));
    object.insert("seconds".into(), json!(outcome.seconds));
    let row = |(metric, simulated, unit)| json!({ "metric": metric, "simulated": simulated, "unit": unit });
    object.insert("rows".into(), metrics(outcome).map(row).collect());
    for (name, value, _) in metrics(outcome) {
        object.insert(name, json!(value));
    }
    object.insert("locks".into(), json!(outcome.locks));
    object.insert("lines".into(), json!(outcome.lines));
    object.insert("off".into(), json!(outcome.off));
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
        add("queued", line.queued, "cycles");
        add("cycles", line.cycles, "cycles");
    }
    all
}

/// A line a number, with what tells runs apart.
pub(crate) fn csv_of(args: &SimArgs, done: &[(Spec, Outcome)]) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "machine", "workload", "kernel", "tasks", "lru", "seed", "quick", "delay_ms", "after",
        "regions", "metric", "value", "unit",
    ])?;
    // As in JSON: what was not asked for is not there.
    let asked = |number: Option<u32>| number.map(|it| it.to_string()).unwrap_or_default();
    for (spec, outcome) in done {
        let profile = if args.profile { profile(outcome) } else { Vec::new() };
        for (metric, value, unit) in metrics(outcome).chain(profile) {
            writer.write_record([
                &*outcome.machine,
                &*outcome.workload,
                &*outcome.preset,
                &*outcome.tasks.to_string(),
                spec.lru.name(),
                &*outcome.seed.to_string(),
                &*spec.quick.to_string(),
                &*spec.delay_ms.to_string(),
                &*asked(spec.after),
                &*asked(spec.regions.map(NonZeroU32::get)),
                &*metric,
                &*value.to_string(),
                unit,
            ])?;
        }
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

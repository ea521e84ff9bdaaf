//! The results of runs for programs: JSON and CSV.

use std::io;

use serde_json::{Map, Value, json};
use zonal_cli::provenance::Provenance;

use crate::command::{Done, Ground, IoschedArgs, Work};
use crate::published::{BASE, Change, Machine, PATCHED};
use crate::scheduler::Kind;

/// A figure, with as many digits as it has worth.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        medium if medium >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Percentiles and their names.
const PERCENTILES: [(&str, f64); 5] =
    [("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("p999_ms", 0.999), ("longest_ms", 1.0)];

/// The figures of a whole run, with their units.
fn totals(done: &Done) -> Vec<(&'static str, f64, &'static str)> {
    let (outcome, counters) = (&done.outcome, &done.outcome.counters);
    let mut totals = vec![
        ("rate", outcome.mib_s(), "MiB/s"),
        ("await", counters.await_ms(), "ms"),
        ("r_await", counters.reads.await_ms(), "ms"),
        ("w_await", counters.writes.await_ms(), "ms"),
        ("avgqz", counters.queue_length(), "requests"),
        ("submitted", counters.submitted as f64, "count"),
        ("back_merges", counters.back_merges as f64, "count"),
        ("front_merges", counters.front_merges as f64, "count"),
        ("dispatched_reads", counters.reads.dispatched as f64, "count"),
        ("dispatched_writes", counters.writes.dispatched as f64, "count"),
        ("idled", outcome.idled.as_millis(), "ms"),
        ("elapsed", outcome.elapsed.as_millis(), "ms"),
    ];
    if let Some(cache) = outcome.cache {
        totals.push(("hit_share", cache.hit_share(), "part"));
        totals.push(("ahead_share", cache.ahead_share(), "part"));
    }
    totals
}

/// The figures of each process and operation: name, figure, value, unit.
fn shares(done: &mut Done) -> Vec<(String, &'static str, f64, &'static str)> {
    let elapsed = done.outcome.elapsed.0.max(1) as f64 / 1e9;
    let mut all = Vec::new();
    for share in &mut done.outcome.shares {
        let rate = share.bytes as f64 / elapsed / f64::from(1 << 20);
        let count = share.latencies.count() as f64 / elapsed;
        let name = || share.name.clone();
        all.push((name(), "rate", rate, "MiB/s"));
        all.push((name(), "done", count, "per_s"));
        for (figure, part) in PERCENTILES {
            let value = share.latencies.percentile(part).as_millis();
            all.push((share.name.clone(), figure, value, "ms"));
        }
    }
    all
}

/// A run as a JSON object.
pub(crate) fn object(args: &IoschedArgs, ground: &Ground, done: &mut Done) -> Value {
    let mut object = Map::new();
    object.insert("on".into(), json!(ground.name()));
    object.insert("kind".into(), json!(ground.kind()));
    object.insert("workload".into(), json!(args.workload.name()));
    object.insert("scheduler".into(), json!(done.subject.kind.name()));
    if done.subject.kind == Kind::Cfq {
        object.insert("target_latency_ms".into(), json!(done.subject.target_ms));
    }
    object.insert("processes".into(), json!(done.processes));
    if let Some(bytes) = args.cache {
        object.insert("cache_bytes".into(), json!(bytes));
    }
    for (name, value, _) in totals(done) {
        object.insert(name.into(), json!(value));
    }
    let mut each: Vec<Map<String, Value>> = Vec::new();
    for (name, figure, value, _) in shares(done) {
        if each.last().is_none_or(|last| last["process"] != json!(name)) {
            each.push(Map::from_iter([("process".to_owned(), json!(name))]));
        }
        each.last_mut().map(|last| last.insert(figure.into(), json!(value)));
    }
    object.insert("each".into(), json!(each));
    if let Ok(Value::Object(origin)) = serde_json::to_value(Provenance::of_this_run()) {
        object.extend(origin);
    }
    Value::Object(object)
}

/// The changes that can be compared: both targets were run with as many readers as was published.
pub(crate) fn changes_of(args: &IoschedArgs, ground: &Ground, done: &[Done]) -> Vec<Change> {
    let Ground::Disk(disk) = ground else { return Vec::new() };
    let Some(machine) = Machine::of_disk(&disk.name) else { return Vec::new() };
    if args.workload != Work::Readers {
        return Vec::new();
    }
    let rate = |threads, target| {
        let is_it = |it: &&Done| {
            (it.subject.kind, it.subject.target_ms, it.processes) == (Kind::Cfq, target, threads)
        };
        done.iter().find(is_it).map(|it| it.outcome.mib_s())
    };
    let change =
        |threads: &u32| Change::of(machine, *threads, (rate(*threads, 300)?, rate(*threads, 600)?));
    args.processes.iter().filter_map(change).collect()
}

/// Published rows beside simulated ones, as `zonal reproduce` has them.
pub(crate) fn changes(args: &IoschedArgs, ground: &Ground, done: &[Done]) -> Vec<Value> {
    let mut rows = Vec::new();
    for change in changes_of(args, ground, done) {
        let row = |kernel, kind, published: f64, simulated: f64| {
            json!({
                "machine": change.machine.name(), "stat": "mean", "operation": "SeqRead",
                "threads": change.threads, "kernel": kernel, "metric": "mb_per_s", "kind": kind,
                "published": published, "simulated": simulated,
            })
        };
        // One reader's rate on the unpatched kernel is what the disk was fitted to.
        let kind = if change.threads == 1 { "fitted" } else { "predicted" };
        rows.push(row(BASE, kind, change.published.0, change.simulated.0));
        let mut patched = row(PATCHED, "predicted", change.published.1, change.simulated.1);
        patched["published_change"] = json!(change.published_change());
        patched["simulated_change"] = json!(change.simulated_change());
        rows.push(patched);
    }
    rows
}

/// A line a number, with what tells runs apart.
pub(crate) fn csv_of(
    args: &IoschedArgs,
    ground: &Ground,
    done: &mut [Done],
) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "on",
        "kind",
        "workload",
        "scheduler",
        "processes",
        "process",
        "metric",
        "value",
        "unit",
    ])?;
    for run in done {
        let totals = totals(run).into_iter();
        let totals = totals.map(|(metric, value, unit)| (String::new(), metric, value, unit));
        for (process, metric, value, unit) in totals.chain(shares(run)).collect::<Vec<_>>() {
            writer.write_record([
                &*ground.name(),
                ground.kind(),
                args.workload.name(),
                &*run.subject.name(),
                &*run.processes.to_string(),
                &*process,
                metric,
                &*value.to_string(),
                unit,
            ])?;
        }
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

//! The results of runs for people.

use std::io::{self, Write};

use zonal_cfq::units::Span;
use zonal_cli::size::human;
use zonal_cli::table::Table;
use zonal_cli::terminal;
use zonal_disk::builtins;

use crate::command::{Done, Ground, IoschedArgs};
use crate::records::{changes_of, number};

/// Prints the disks that are built in.
pub(crate) fn disks(out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(1);
    table.text("disk");
    table.number("capacity", "GiB");
    table.text("what it is");
    for (name, disk) in builtins() {
        table.row([name.to_owned(), format!("{:.0}", disk.capacity_gib), disk.title]);
    }
    writeln!(out, "{table}")
}

/// Prints what the runs showed.
pub(crate) fn print(
    args: &IoschedArgs,
    ground: &Ground,
    done: &mut [Done],
    out: &mut dyn Write,
) -> io::Result<()> {
    let (name, kind, work) = (ground.name(), ground.kind(), args.workload.name());
    let what = match ground {
        Ground::Disk(disk) => disk.title.clone(),
        Ground::File(file, _) => {
            let way = if file.is_direct() { "around" } else { "through" };
            let (size, depth) = (human(file.bytes()), args.depth);
            let cache =
                args.cache.map(|bytes| format!(", under a cache of {}", human(bytes as u64)));
            let cache = cache.unwrap_or_default();
            format!("{size}, {way} the kernel's page cache, {depth} requests at a time{cache}")
        }
    };
    writeln!(out, "{}", terminal::fold(&format!("{work} on {name}, {kind}: {what}")))?;
    writeln!(out, "{}", totals(done))?;
    if !args.summary {
        writeln!(out, "\n{}", shares(done))?;
    }
    if let Some(text) = changes(args, ground, done) {
        writeln!(out, "\n{text}")?;
    }
    let mut notes = "await: mean time from submission to completion. idled: kept waiting for a request \
                 that might come. Latencies are those of requests as processes ask for them, and of \
                 whole fsyncs."
        .to_owned();
    if args.cache.is_some() {
        notes += " With a cache, those of reads and writes of it: one that finds all in memory, and a write, \
                  waits for no request. hits: of the pages that were read, those that had not to be read \
                  from the file, now or ahead.";
    }
    writeln!(out, "\n{}", terminal::fold(&notes))?;
    out.flush()
}

fn totals(done: &[Done]) -> Table {
    let mut table = Table::new(2);
    table.text("scheduler");
    table.number("processes", "");
    for (head, unit) in [
        ("rate", "MiB/s"),
        ("await", "ms"),
        ("r await", "ms"),
        ("w await", "ms"),
        ("queue", ""),
        ("merged", "%"),
        ("idled", "%"),
    ] {
        table.number(head, unit);
    }
    // There is room for one: with a cache, how long it took is in the records alone.
    if done.iter().any(|done| done.outcome.cache.is_some()) {
        table.number("hits", "%");
    } else {
        table.number("time", "s");
    }
    for Done { subject, processes, outcome } in done {
        let counters = &outcome.counters;
        let merges = counters.back_merges + counters.front_merges;
        let part = |part: f64, whole: f64| number(part * 100.0 / whole.max(1.0));
        let row = [
            subject.name(),
            processes.to_string(),
            number(outcome.mib_s()),
            number(counters.await_ms()),
            number(counters.reads.await_ms()),
            number(counters.writes.await_ms()),
            number(counters.queue_length()),
            part(merges as f64, counters.submitted as f64),
            part(outcome.idled.as_millis(), outcome.elapsed.as_millis()),
        ];
        let last = match outcome.cache {
            Some(cache) => number(cache.hit_share() * 100.0),
            None => number(outcome.elapsed.as_millis() / 1e3),
        };
        table.row(row.into_iter().chain([last]));
    }
    table
}

fn shares(done: &mut [Done]) -> Table {
    let mut table = Table::new(3);
    table.text("scheduler");
    table.number("processes", "");
    table.text("process");
    table.number("done", "/s");
    table.number("rate", "MiB/s");
    for head in ["p50", "p99", "p99.9", "longest"] {
        table.number(head, "ms");
    }
    for Done { subject, processes, outcome } in done {
        let elapsed = outcome.elapsed;
        let per_second = |count: f64| count * 1e9 / elapsed.0.max(1) as f64;
        for share in &mut outcome.shares {
            let mut at = |part| milliseconds(share.latencies.percentile(part));
            let percentiles = [0.5, 0.99, 0.999, 1.0].map(&mut at);
            let rate = per_second(share.bytes as f64) / f64::from(1 << 20);
            let own = [
                subject.name(),
                processes.to_string(),
                share.name.clone(),
                number(per_second(share.latencies.count() as f64)),
                number(rate),
            ];
            table.row(own.into_iter().chain(percentiles));
        }
    }
    table
}

fn milliseconds(time: Span) -> String {
    number(time.as_millis())
}

/// What was published beside what is simulated, if there is such a thing.
fn changes(args: &IoschedArgs, ground: &Ground, done: &[Done]) -> Option<String> {
    let changes = changes_of(args, ground, done);
    let machine = changes.first()?.machine.name();
    let mut table = Table::new(1);
    table.number("readers", "");
    table.number("published 300 ms", "MB/s");
    table.number("published 600 ms", "MB/s");
    table.number("published change", "%");
    table.number("simulated 300 ms", "MiB/s");
    table.number("simulated 600 ms", "MiB/s");
    table.number("simulated change", "%");
    table.number("error", "points");
    for change in &changes {
        table.row([
            change.threads.to_string(),
            format!("{:.2}", change.published.0),
            format!("{:.2}", change.published.1),
            format!("{:+.2}", change.published_change()),
            format!("{:.2}", change.simulated.0),
            format!("{:.2}", change.simulated.1),
            format!("{:+.2}", change.simulated_change()),
            format!("{:.2}", change.error()),
        ]);
    }
    let count = changes.len() as f64;
    let own: f64 = changes.iter().map(crate::published::Change::error).sum();
    let none: f64 = changes.iter().map(|change| change.published_change().abs()).sum();
    let (own, none) = (own / count, none / count);
    Some(format!(
        "{machine}, the patch to CFQ's target latency, predicted:\n{table}\nmean error of the change: \
         {own:.2} points; of \"the patch changes nothing\": {none:.2}"
    ))
}

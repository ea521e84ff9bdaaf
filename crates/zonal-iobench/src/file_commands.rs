//! `zonal sparsetruncate`, `zonal bonnie` and `zonal dbench`: on real files where a directory is given, on
//! a simulated machine otherwise.

use core::time::Duration;
use std::io::Write;
use std::path::Path;

use serde_json::json;
use zonal_cli::bar::Bar;
use zonal_cli::error::LabError;
use zonal_cli::interrupt;
use zonal_scenario::truncate::{Statistic, Times};

use crate::command::{
    BonnieArgs, DbenchArgs, Shown, SparsetruncateArgs, kernel_called, machine_called, show,
};
use crate::error::IobenchError;
use crate::files::{self, Step};
use crate::freeing::{self, bonnie_rates, removal_costs};
use crate::kernel::Kernel;
use crate::many_files::{Act, Bonnie, Clients, Dbench, Order, Pass};
use crate::simulated::{self, DbenchCase};

/// Truncates files.
pub(crate) fn sparsetruncate(
    args: &SparsetruncateArgs,
    out: &mut dyn Write,
) -> Result<(), IobenchError> {
    let results = match &args.directory {
        Some(directory) => vec![truncated(args, directory)?],
        None => simulated_truncation(args)?,
    };
    show(&results, args.json, out)
}

fn truncated(args: &SparsetruncateArgs, directory: &Path) -> Result<Shown, IobenchError> {
    let pages = (args.size as u64).div_ceil(4096);
    let bar = Bar::new(0, args.no_progress);
    let told = &mut |step: Step| bar.at(step.done, step.all, step.what);
    let times = files::sparsetruncate(directory, args.files, pages, told)?;
    drop(bar);
    if times.is_empty() {
        return Err(LabError::Interrupted.into());
    }
    let shown = Shown::measured(directory, ("files", json!(times.len())));
    let times = Times::new(times.iter().map(|time| time.as_secs_f64() * 1e6));
    Ok(shown.with(statistics(|statistic| times.of(statistic))))
}

fn simulated_truncation(args: &SparsetruncateArgs) -> Result<Vec<Shown>, IobenchError> {
    let bar = Bar::new(args.preset.len() as u64, args.no_progress);
    let mut results = Vec::new();
    for preset in &args.preset {
        if interrupt::is_requested() {
            break;
        }
        let outcome = freeing::sparsetruncate(&args.machine, *preset, args.seed)?;
        bar.done(1, preset.name().to_owned());
        let shown = Shown::simulated(&args.machine, ("preset", preset.name()));
        let of = |statistic: Statistic| outcome.figure(statistic.figure()).unwrap_or(f64::NAN);
        let toggles = outcome.figure("toggles_a_page").unwrap_or(f64::NAN);
        let shown = shown.with(statistics(of)).with([("toggles a page", toggles, "count")]);
        results.push(shown);
    }
    Ok(results)
}

fn statistics(
    of: impl Fn(Statistic) -> f64,
) -> impl Iterator<Item = (&'static str, f64, &'static str)> {
    Statistic::ALL.into_iter().map(move |it| {
        let unit = if it.unit() == "us" { "µs" } else { it.unit() };
        (it.name(), of(it), unit)
    })
}

/// Makes, reads and removes files.
pub(crate) fn bonnie(args: &BonnieArgs, out: &mut dyn Write) -> Result<(), IobenchError> {
    let mut results = Vec::new();
    if let Some(directory) = &args.directory {
        let pages = args.size.map_or(0, |size| size.div_ceil(4096) as u64);
        let work = Bonnie { files: args.files, pages, seed: args.seed };
        let bar = Bar::new(0, args.no_progress);
        let told = &mut |step: Step| bar.at(step.done, step.all, step.what);
        let done = files::bonnie(directory, &work, told)?;
        drop(bar);
        let shown = |order| Shown::measured(directory, order);
        results.extend(by_order(&done, shown));
        return show(&results, args.json, out);
    }
    let machine = machine_called(&args.simulated.machine, args.simulated.scale)?;
    let kernels = kernels(&args.kernel)?;
    let files = (u64::from(args.files) / args.simulated.scale) as u32;
    let together = Bonnie::twice(machine.frames, files, args.seed);
    let pages = args.size.map_or(together.pages, |size| (size.div_ceil(4096) as u64).max(1));
    let bonnie = Bonnie { pages, ..together };
    let bar = Bar::new(kernels.len() as u64, args.no_progress);
    for kernel in kernels {
        if interrupt::is_requested() {
            break;
        }
        let rates = bonnie_rates(&machine, &kernel, &bonnie)?;
        bar.done(1, kernel.name.to_owned());
        let shown =
            |(name, order)| Shown::simulated(machine.name, ("kernel", kernel.name)).of(name, order);
        results.extend(by_order(&rates, shown));
    }
    show(&results, args.json, out)
}

/// A line for each order of which all passes were done.
fn by_order(
    rates: &[(Pass, f64)],
    shown: impl Fn((&'static str, serde_json::Value)) -> Shown,
) -> Vec<Shown> {
    let orders = [(Order::Seq, "Seq"), (Order::Rand, "Rand")];
    let line = |(order, name)| {
        let of = |act| {
            let found = rates.iter().find(|(pass, _)| *pass == Pass { order, act });
            found.map(|(_, rate)| *rate)
        };
        let (create, read, delete) = (of(Act::Create)?, of(Act::Read)?, of(Act::Delete)?);
        Some(shown(("order", json!(name))).with([
            ("Create ops", create, "/s"),
            ("Create read", read, "/s"),
            ("Create del", delete, "/s"),
        ]))
    };
    orders.into_iter().filter_map(line).collect()
}

fn kernels(names: &[String]) -> Result<Vec<Kernel>, IobenchError> {
    names.iter().map(|name| kernel_called(name)).collect()
}

/// Runs clients.
pub(crate) fn dbench(args: &DbenchArgs, out: &mut dyn Write) -> Result<(), IobenchError> {
    let results = match &args.directory {
        Some(directory) => measured_clients(args, directory)?,
        None => simulated_clients(args)?,
    };
    show(&results, args.json, out)
}

fn measured_clients(args: &DbenchArgs, directory: &Path) -> Result<Vec<Shown>, IobenchError> {
    let duration = args.duration.unwrap_or(Duration::from_secs(5));
    let mut results = Vec::new();
    // How long each run takes is known.
    let (bar, time) = (Bar::of_time(args.no_progress), |runs: usize| duration * runs as u32);
    for (at, clients) in args.clients.iter().enumerate() {
        bar.time(time(at), time(args.clients.len() - at), &format!("{clients} clients"));
        let done = files::dbench(directory, &Dbench::of(*clients, duration))?;
        if interrupt::is_requested() {
            break;
        }
        let shown = Shown::measured(directory, ("clients", json!(clients)));
        results.push(shown.with(figures(&done)));
    }
    Ok(results)
}

fn simulated_clients(args: &DbenchArgs) -> Result<Vec<Shown>, IobenchError> {
    let duration = args.duration.unwrap_or(Duration::from_secs(60));
    let machine = machine_called(&args.simulated.machine, args.simulated.scale)?;
    let kernels = kernels(&args.kernel)?;
    let bar = Bar::new((kernels.len() * args.clients.len()) as u64, args.no_progress);
    let mut results = Vec::new();
    for kernel in kernels {
        let removal = removal_costs(&kernel)?;
        for clients in &args.clients {
            if interrupt::is_requested() {
                break;
            }
            let dbench = Dbench::of(*clients, duration);
            let done = simulated::dbench(&DbenchCase { machine, kernel, dbench, removal })?;
            bar.done(1, format!("{}, {clients} clients", kernel.name));
            let shown = Shown::simulated(machine.name, ("kernel", kernel.name));
            results.push(shown.of("clients", json!(clients)).with(figures(&done)));
        }
    }
    Ok(results)
}

fn figures(done: &Clients) -> [(&'static str, f64, &'static str); 3] {
    [
        ("rate", done.mib_s, "MiB/s"),
        ("rounds", done.rounds as f64, "count"),
        ("longest", done.longest.as_secs_f64() * 1e3, "ms"),
    ]
}

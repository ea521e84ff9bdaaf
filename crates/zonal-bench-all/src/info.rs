//! `zonal info`: the reports of a running workload.
//!
//! ```
//! use zonal_bench_all::info::InfoArgs;
//!
//! let args = InfoArgs { preset: "zonal".into(), memory: 64 << 20, json: false };
//! let mut out = Vec::new();
//! zonal_bench_all::info::run(&args, &mut out)?;
//! let text = String::from_utf8(out)?;
//! assert!(text.contains("Node 0, zone   Normal"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{self, Write};
use std::panic::resume_unwind;
use std::thread::Builder;

use clap::Args;
use serde_json::{Map, Value, json};
use zonal::policy::{Policy, Sound};
use zonal::preset::SplitZonesByCpu;
use zonal::report::{BuddyInfo, PageTypeInfo, UnusableFree, VmStat, ZoneStatus};
use zonal::{MigrateType, Order, Request};
use zonal_host::Arena;
use zonal_host::arena::Page;
use zonal_scenario::preset::{self, OnPreset};

use zonal_bench::rng::Rng;
use zonal_bench::subject::Group;
use zonal_bench::subjects;
use zonal_bench::subjects::zonal::zones;
use zonal_cli::error::LabError;
use zonal_cli::provenance::Provenance;
use zonal_cli::size::parse_size;
use zonal_cli::together::together;

/// Arguments of `zonal info`.
#[derive(Clone, Debug, Args)]
pub struct InfoArgs {
    /// The preset to run
    #[arg(long, default_value = "zonal")]
    pub preset: String,
    /// Frames to manage, in bytes
    #[arg(long, value_parser = parse_size, default_value = "4G", value_name = "SIZE")]
    pub memory: usize,
    /// Print JSON, one object a zone and line, instead of the reports
    #[arg(long)]
    pub json: bool,
}

/// Threads of the workload.
const THREADS: u64 = 2;
/// Allocations and frees each of them makes before the reports are taken.
const STEPS: u64 = 20_000;

/// Runs a workload on `args.preset` and, while it holds about half of its blocks, prints
/// `buddyinfo`, `pagetypeinfo`, `zoneinfo`, `vmstat` and the unusable-free index to `out`.
///
/// # Errors
///
/// [`LabError::UnknownPreset`], [`LabError::Arena`] if the memory cannot be had,
/// [`LabError::Machine`] if a thread cannot, or what writing says.
pub fn run(args: &InfoArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let is = |name: &str| preset::is_called(name, &args.preset);
    let report = Report { memory: args.memory, json: args.json, out };
    // Not one of the simulator's.
    if is(SplitZonesByCpu::NAME) {
        return report.run::<SplitZonesByCpu>();
    }
    if let Some(preset) = preset::on_memory().find(|preset| is(preset.name())) {
        return preset.with(report);
    }
    let known = subjects::names(&subjects::KNOWN, |group| group == Group::Zonal);
    Err(LabError::UnknownPreset { name: args.preset.clone(), known })
}

/// The reports of one preset.
struct Report<'a> {
    memory: usize,
    json: bool,
    out: &'a mut dyn Write,
}

impl OnPreset for Report<'_> {
    type Output = Result<(), LabError>;

    fn run<S: Sound>(self) -> Self::Output {
        report::<S>(self)
    }
}

fn report<S: Sound>(Report { memory, json, out }: Report<'_>) -> Result<(), LabError> {
    let arena = Arena::builder().preset::<S>().reserve(memory).open();
    let arena = arena.map_err(|error| LabError::Arena(Box::new(error)))?;
    let threads = (1..=THREADS).map(|seed| (Builder::new(), seed));
    let held = together(threads, |_, seed| churn(&arena, seed));
    let held = held.map_err(|source| LabError::Machine { what: "start a thread", source })?;
    let held: Vec<_> =
        held.into_iter().map(|it| it.unwrap_or_else(|panic| resume_unwind(panic))).collect();
    let written = if json { write_json(&arena, out) } else { print(&arena, out) };
    drop(held);
    written.map_err(LabError::Print)
}

/// Allocates and frees blocks of several orders and types; returns those still held.
fn churn<S: Sound>(arena: &Arena<S>, seed: u64) -> Vec<Page<'_, S>> {
    let mut rng = Rng::new(seed);
    let mut held = Vec::new();
    for _ in 0..STEPS {
        if held.len() > 64 && rng.below(2) == 0 {
            let at = rng.below(held.len());
            held.swap_remove(at);
            continue;
        }
        // Single frames mostly, as everywhere; the rest falls off quickly with the order.
        let order = (rng.below(1 << 12) as u16).leading_zeros().saturating_sub(4).min(9);
        let types = [MigrateType::Movable, MigrateType::Unmovable, MigrateType::Reclaimable];
        let migrate = types[rng.below(types.len())];
        let order = Order::new(order as u8).unwrap_or(Order::ZERO);
        held.extend(arena.alloc(&Request::new(order).migrate(migrate)).ok());
    }
    held
}

fn print<S: Sound>(arena: &Arena<S>, out: &mut dyn Write) -> io::Result<()> {
    // SAFETY: the reports only read; nothing is freed through this reference.
    let allocator = unsafe { arena.allocator() };
    writeln!(out, "# {}: buddyinfo\n{}", S::NAME, BuddyInfo(allocator))?;
    writeln!(out, "# {}: pagetypeinfo\n{}", S::NAME, PageTypeInfo(allocator))?;
    writeln!(out, "# {}: zoneinfo\n{}", S::NAME, ZoneStatus(allocator))?;
    writeln!(out, "# {}: vmstat\n{}", S::NAME, VmStat(allocator))?;
    writeln!(out, "# {}: unusable free index\n{}", S::NAME, UnusableFree(allocator))
}

/// The reports as JSON: an object for each zone, then one with the counters of vmstat.
fn write_json<S: Sound>(arena: &Arena<S>, out: &mut dyn Write) -> io::Result<()> {
    // SAFETY: the reports only read; nothing is freed through this reference.
    let allocator = unsafe { arena.allocator() };
    let free_blocks = free_blocks(&BuddyInfo(allocator).to_string());
    let origin = serde_json::to_value(Provenance::of_this_run())?;
    let mut write = |mut object: Value| {
        if let (Some(object), Some(origin)) = (object.as_object_mut(), origin.as_object()) {
            object.extend(origin.clone());
        }
        writeln!(out, "{object}")
    };
    for (at, zone) in zones(arena).enumerate() {
        write(json!({
            "record": "zone",
            "preset": S::NAME,
            "node": zone.node.0,
            "zone": format!("{:?}", zone.zone_type),
            "instance": zone.instance,
            "start_pfn": zone.start.get(),
            "spanned": zone.spanned,
            "present": zone.present,
            "managed": zone.managed,
            "free": zone.free,
            "cached": zone.cached,
            "isolated": zone.isolated,
            "min": zone.watermarks.min,
            "low": zone.watermarks.low,
            "high": zone.watermarks.high,
            "free_blocks_by_order": free_blocks.get(at),
        }))?;
    }
    let counters = counters(&VmStat(allocator).to_string());
    write(json!({ "record": "vmstat", "preset": S::NAME, "counters": counters }))
}

/// The numbers of each line of buddyinfo: `Node 0, zone   Normal      1      2 ...`.
fn free_blocks(buddyinfo: &str) -> Vec<Vec<u64>> {
    let numbers = |line: &str| -> Vec<u64> {
        let mut numbers: Vec<u64> =
            line.split_whitespace().rev().map_while(|word| word.parse().ok()).collect();
        numbers.reverse();
        numbers
    };
    buddyinfo.lines().filter(|line| line.starts_with("Node")).map(numbers).collect()
}

/// The lines of vmstat, `name value`.
fn counters(vmstat: &str) -> Map<String, Value> {
    let pairs = vmstat.lines().filter_map(|line| line.split_once(' '));
    let pairs = pairs.filter_map(|(name, value)| Some((name, value.trim().parse::<u64>().ok()?)));
    pairs.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

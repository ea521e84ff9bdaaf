//! The allocator's own source on virtual CPUs under random schedules.
//!
//! A seed draws a swarm (preset, memory, CPUs, what they do and how often they are interrupted),
//! and the schedule; every frame handed out is in a ledger, and whenever no CPU is inside the
//! allocator, all checkers of the testkit run. A failing seed is printed with the command that
//! runs it again, exactly.
//!
//! ```text
//! cargo test --release -p zonal-explore                                   what CI runs, for longer
//! ZONAL_EXPLORE_RUNS=100000 cargo test --release -p zonal-explore --lib seeds
//! cargo xtask explore --hours 1                                           an hour, to be gone on with
//! ZONAL_EXPLORE_FROM=5000 ZONAL_EXPLORE_RUNS=...                          other seeds
//! ZONAL_EXPLORE_PRESET=Zonal ZONAL_EXPLORE_RUNS=...                       on one preset
//! ZONAL_EXPLORE_SEED=42 cargo test --release -p zonal-explore --lib seeds -- --nocapture
//!                                                                         one seed, step by step
//! ```
#![cfg(test)]

mod canaries;
mod cpu;
mod host;
mod ledger;
mod run;
mod swarm;

use run::{Failure, Ran, run_swarm};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use swarm::{PRESETS, Swarm};

/// Runs in CI: 10 to 20 s on two cores, with optimisation.
const RUNS: u64 = if cfg!(debug_assertions) { 100 } else { 3000 };
/// And of those that are about single frames only.
const SINGLES: u64 = if cfg!(debug_assertions) { 50 } else { 1000 };

/// Seeds that failed once, and are run first ever since.
const KEPT: &str = include_str!("../explore_seeds.txt");

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

fn kept() -> Vec<u64> {
    let lines = KEPT.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    lines.filter(|line| !line.is_empty()).map(|line| line.parse().expect("a seed")).collect()
}

/// What several runs did, and their steps by preset.
#[derive(Default)]
struct Sum {
    all: Ran,
    steps: BTreeMap<&'static str, u64>,
}

/// A swarm of the seed, on the preset that the environment asks for if it does.
fn asked(swarm: fn(u64) -> Swarm, seed: u64) -> Swarm {
    let swarm = swarm(seed);
    match std::env::var("ZONAL_EXPLORE_PRESET") {
        Ok(preset) => swarm.on(&preset),
        Err(_) => swarm,
    }
}

/// Runs all of them on as many threads as there are CPUs; the failure of the first seed.
fn run_all(seeds: &[u64], swarm: fn(u64) -> Swarm) -> Result<Sum, Failure> {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(None::<(usize, Failure)>));
    let sum = Mutex::new(Sum::default());
    let work = || {
        loop {
            let at = next.fetch_add(1, Relaxed) as usize;
            let Some(&seed) = seeds.get(at) else { return };
            let swarm = asked(swarm, seed);
            match run_swarm(&swarm, false) {
                Ok(ran) => {
                    let mut sum = sum.lock().expect("no thread panics with it");
                    sum.all.add(&ran);
                    *sum.steps.entry(PRESETS[swarm.preset]).or_default() += ran.steps;
                }
                Err(failure) => {
                    next.store(seeds.len() as u64, Relaxed);
                    let mut failed = failed.lock().expect("no thread panics with it");
                    if failed.as_ref().is_none_or(|(first, _)| at < *first) {
                        *failed = Some((at, failure));
                    }
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    match failed.into_inner().expect("no thread panics with it") {
        Some((_, failure)) => Err(failure),
        None => Ok(sum.into_inner().expect("no thread panics with it")),
    }
}

/// A bounded run, a long one, or one seed again.
fn explore_all(runs: u64, swarm: fn(u64) -> Swarm) -> Ran {
    if let Some(seed) = number("ZONAL_EXPLORE_SEED") {
        let ran =
            run_swarm(&asked(swarm, seed), true).unwrap_or_else(|failure| panic!("{failure}"));
        println!("seed {seed} is fine: {ran:?}");
        return ran;
    }
    let from = number("ZONAL_EXPLORE_FROM").unwrap_or(0);
    let runs = number("ZONAL_EXPLORE_RUNS").unwrap_or(runs);
    let seeds: Vec<u64> = kept().into_iter().chain(from..from.saturating_add(runs)).collect();
    let began = Instant::now();
    let sum = run_all(&seeds, swarm).unwrap_or_else(|failure| panic!("{failure}"));
    let (ran, took) = (sum.all, began.elapsed().as_secs_f64());
    // `cargo xtask explore` reads these.
    // Lines of their own: the harness may have begun one.
    sum.steps.iter().for_each(|(preset, steps)| println!("\nsteps {steps} {preset}"));
    println!(
        "{} runs, {} steps, {} refusals checked alone, {} among others, {took:.1} s",
        seeds.len(),
        ran.steps,
        ran.alone,
        ran.among
    );
    ran
}

/// Whether this is not one seed or a few.
fn many(runs: u64) -> bool {
    number("ZONAL_EXPLORE_SEED").is_none() && number("ZONAL_EXPLORE_RUNS").unwrap_or(runs) >= 50
}

/// Everything at once.
#[test]
fn seeds() {
    let ran = explore_all(RUNS, Swarm::new);
    assert!(!many(RUNS) || ran.alone > 0, "some requests are refused, and it is checked");
}

/// Single frames, more of them wanted than there are.
#[test]
fn single_frames() {
    let ran = explore_all(SINGLES, Swarm::single_frames);
    assert!(!many(SINGLES) || ran.among > 0, "some requests are refused, and it is checked");
}

/// The same seed is the same run: to the choice, on whatever thread.
#[test]
fn a_seed_is_a_run() {
    let run =
        |seed| run_swarm(&Swarm::new(seed), false).unwrap_or_else(|failure| panic!("{failure}"));
    let all = || (0..24).map(run).collect::<Vec<_>>();
    let first = all();
    let others = std::thread::scope(|scope| {
        let threads = [scope.spawn(all), scope.spawn(all)];
        threads.map(|thread| thread.join().expect("it has passed before"))
    });
    assert_eq!(others, [first.clone(), first.clone()]);
    let mut traces: Vec<_> = first.iter().map(|ran| ran.trace).collect();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), first.len(), "every seed is another run");
}

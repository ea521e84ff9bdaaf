//! One run, printed: `cargo run --release -p zonal-sim --example one_run -- skylake_2s_112cpu page-fault1 Linux416 112`.

use std::time::Instant;
use zonal_sim::machine;
use zonal_sim::run::{LruLock, Preset, Spec, Workload, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [machine, workload, presets, tasks, rest @ ..] = &words[..] else {
        return Err(
            "usage: one_run MACHINE WORKLOAD PRESET[,PRESET...] TASKS [quick] [profile]".into()
        );
    };
    let machine = machine::builtin(machine).ok_or("no such machine")?;
    let workload =
        Workload::ALL.into_iter().find(|w| w.name() == workload).ok_or("no such workload")?;
    for name in presets.split(',') {
        let preset = Preset::ALL.into_iter().find(|p| p.name() == name).ok_or("no such preset")?;
        let quick = rest.iter().any(|word| word == "quick");
        let lru =
            if rest.iter().any(|word| word == "split") { LruLock::Split } else { LruLock::Node };
        let spec = Spec { workload, preset, tasks: tasks.parse()?, seed: 1, lru, quick };
        let began = Instant::now();
        let outcome = run(&machine, &spec)?;
        let zone = outcome.spin_percent("zone");
        let alloc = outcome.spin_percent_during("zone", "alloc");
        let free = outcome.spin_percent_during("zone", "free");
        let lru = outcome.spin_percent("lru");
        let space = outcome.spin_percent("space");
        print!(
            "{name:12} zone {zone:5.1} % (alloc {alloc:4.1}, free {free:4.1}) lru {lru:4.1} space {space:4.1}"
        );
        for figure in &outcome.figures {
            print!("  {} {:.0}", figure.name, figure.value);
        }
        println!(
            "  [{:.2} s virtual, {:.2} s real]",
            outcome.seconds,
            began.elapsed().as_secs_f64()
        );
        if rest.iter().any(|word| word == "profile") {
            for lock in &outcome.locks {
                println!("  {lock:?}");
            }
            for line in &outcome.lines {
                println!("  {line:?}");
            }
        }
    }
    Ok(())
}

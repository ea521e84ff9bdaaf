//! One run, printed: `cargo run --release -p zonal-sim --example one_run -- skylake_2s_112cpu page-fault1 Linux416 112`.

use std::time::Instant;
use zonal_sim::machine::{self, Machine};
use zonal_sim::run::{LruLock, Preset, Spec, Workload, timed};

/// The machine with some of its numbers replaced: `memory=210 lru_add=40`.
fn changed(machine: &Machine, words: &[String]) -> Result<Machine, Box<dyn std::error::Error>> {
    let mut text = machine.to_toml()?;
    for (key, value) in words.iter().filter_map(|word| word.split_once('=')) {
        let start = format!("{key} = ");
        let line = text.lines().find(|line| line.starts_with(&start)).ok_or("no such number")?;
        text = text.replace(line, &format!("{key} = {value}"));
    }
    Ok(Machine::parse(&text, "changed")?)
}

/// Whether a word is one that [`main`] or [`changed`] looks for.
fn is_known(word: &str) -> bool {
    let pause = || word.strip_suffix("ms").is_some_and(|number| number.parse::<u32>().is_ok());
    matches!(word, "quick" | "profile") || lock(word).is_some() || word.contains('=') || pause()
}

fn lock(word: &str) -> Option<LruLock> {
    LruLock::ALL.into_iter().find(|lock| lock.name() == word)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [machine, workload, presets, tasks, rest @ ..] = &words[..] else {
        return Err(
            "usage: one_run MACHINE WORKLOAD PRESET[,PRESET...] TASKS [quick] [LRU LOCK] [profile] [100ms] [key=value]".into()
        );
    };
    if let Some(word) = rest.iter().find(|word| !is_known(word)) {
        return Err(format!("no such option: {word}").into());
    }
    let machine = changed(&machine::builtin(machine).ok_or("no such machine")?, rest)?;
    let workload =
        Workload::ALL.into_iter().find(|w| w.name() == workload).ok_or("no such workload")?;
    for name in presets.split(',') {
        let preset = Preset::ALL.into_iter().find(|p| p.name() == name).ok_or("no such preset")?;
        let quick = rest.iter().any(|word| word == "quick");
        let lru = rest.iter().find_map(|word| lock(word)).unwrap_or_else(|| LruLock::of(preset));
        let delay = rest.iter().find_map(|word| word.strip_suffix("ms")?.parse().ok());
        let delay_ms = delay.unwrap_or(0);
        let spec = Spec {
            workload,
            preset,
            tasks: tasks.parse()?,
            seed: 1,
            lru,
            delay_ms,
            quick,
            after: None,
            regions: None,
        };
        let began = Instant::now();
        let (outcome, pace) = timed(&machine, &spec)?;
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
            "  [{:.2} s virtual, {:.2} s real, {:.2} M page operations a second]",
            outcome.seconds,
            began.elapsed().as_secs_f64(),
            pace.per_second() / 1e6
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

#[test]
fn misspelt_words_are_not_known() {
    assert!(["quick", "split", "profile", "100ms", "memory=210"].into_iter().all(is_known));
    assert!(!["quikc", "100", "ms", "-1ms", "1 ms", ""].into_iter().any(is_known));
}

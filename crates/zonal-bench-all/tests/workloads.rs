//! The workloads of the 2018 series in tiny versions: that they run on every preset, count what
//! they say, and come out as they must where the outcome is known.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

/// The rows of `zonal bench LINE`.
fn rows(line: &str) -> Vec<Value> {
    let mut command = Command::cargo_bin("zonal-bench").expect("the binary of this crate");
    command.args(["bench", "--json", "--no-progress"]).args(line.split_whitespace());
    let run = command.assert().success();
    let said = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(!said.contains("failed"), "{said}");
    let text = String::from_utf8(run.get_output().stdout.clone()).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("no {name}: {row}"))
}

fn two_cpus() -> bool {
    zonal_bench::machine::cpus().expect("affinity").len() >= 2
}

/// The names of all presets.
fn presets() -> Vec<&'static str> {
    let entries = zonal_bench_all::registry::presets();
    let mut names: Vec<_> = entries.iter().map(|entry| entry.profile.name).collect();
    names.dedup();
    names
}

/// Whether every preset has a row, on both paths.
fn assert_all_presets(rows: &[Value]) {
    for name in presets() {
        for path in ["owned", "shared"] {
            let has = |row: &Value| row["subject"] == name && row["path"] == path;
            assert!(rows.iter().any(has), "{name} {path}: {rows:?}");
        }
    }
}

#[test]
fn parallel_free_runs_for_everybody_and_counts_lock_holds_of_presets() {
    let rows = rows("parallel-free --samples 1 --memory 64M --subjects all,free-list,null");
    assert_all_presets(&rows);
    for row in &rows {
        let preset = presets().iter().any(|name| row["subject"] == *name);
        assert!(number(row, "ns_per_frame") > 0.0);
        assert_eq!(row["hold_frames_max"].is_null(), !preset, "{row}");
        assert_eq!(row["hold_frames"].is_null(), !preset, "{row}");
        if preset {
            let holds = row["hold_frames"].as_array().expect("an array");
            assert_eq!(holds.len(), 13);
            let held: f64 = holds.iter().filter_map(Value::as_f64).sum();
            // A map is filled from without the zone lock.
            let locks = row["subject"] != "Zonal" && row["subject"] != "Trusting";
            assert_eq!(held > 0.0, locks, "memory was filled from the zone: {row}");
            assert_eq!(number(row, "hold_frames_max") > 0.0, locks, "{row}");
        }
    }
    for peer in ["free-list", "null"] {
        assert!(rows.iter().any(|row| row["subject"] == peer));
    }
}

#[test]
fn thp_mix_has_a_rate_for_each_half() {
    if !two_cpus() {
        return;
    }
    let rows = rows("thp-mix --samples 1 --memory 512M --preset all");
    assert_all_presets(&rows);
    for row in &rows {
        assert_eq!(row["threads"], 2, "{row}");
        assert!(number(row, "order0_rate") > 0.0, "{row}");
        let huge = number(row, "order9_rate") + number(row, "fallback_rate");
        assert!(huge > 0.0, "{row}");
    }
}

#[test]
fn stress_highalloc_asks_for_almost_all_memory_and_loses_nothing() {
    if !two_cpus() {
        return;
    }
    let rows =
        rows("stress-highalloc --samples 1 --highalloc-memory 64M --delay-ms 1,2 --preset all");
    assert_all_presets(&rows);
    for row in &rows {
        let delay = row["variant"].as_str().expect("a delay");
        assert!(["delay 1 ms", "delay 2 ms"].contains(&delay), "{row}");
        // 95 % of 32 blocks.
        assert!((number(row, "attempts") - 30.0).abs() < 0.1, "{row}");
        let rate = number(row, "success_rate");
        assert!((0.0..=100.0).contains(&rate), "{row}");
        if rate > 0.0 {
            assert!(number(row, "mean_ns_per_block") > 0.0, "{row}");
        }
        assert!(number(row, "pages_migrated") >= 0.0 && number(row, "pages_reclaimed") >= 0.0);
        assert_eq!(row["memory"], 64u64 << 20);
    }
}

#[test]
fn kbuild_mix_runs_for_everybody_with_the_orders() {
    let rows = rows("kbuild-mix --samples 1 --memory 256M --threads 1 --subjects all,null");
    assert_all_presets(&rows);
    assert!(rows.iter().all(|row| row["unit"] == "block" && number(row, "ns_per_frame") > 0.0));
}

#[test]
fn fragment_by_cpu_counts_what_could_be_whole() {
    if !two_cpus() {
        return;
    }
    let rows = rows("fragment --by-cpu --samples 1 --memory 256M");
    assert_all_presets(&rows);
    for row in &rows {
        assert_eq!((&row["variant"], &row["threads"]), (&"by-cpu".into(), &2.into()), "{row}");
        // 45 % of memory stays allocated: 70 of 128 blocks, or one less for tables.
        let possible = number(row, "blocks_possible");
        assert!((69.0..=70.0).contains(&possible), "{row}");
        let recovered = number(row, "blocks_recovered");
        // A tenth of memory was never filled.
        assert!((10.0..=possible).contains(&recovered), "{row}");
    }
}

#[test]
fn fragment_is_compacted_for_presets_only() {
    let line = "fragment --samples 1 --memory 64M --threads 1 --subjects all";
    let plain = rows(line);
    let compacted = rows(&format!("{line} --compact"));
    assert_all_presets(&compacted);
    for row in &compacted {
        assert_eq!(row["variant"], "compacted");
        let same = |it: &&Value| it["subject"] == row["subject"] && it["path"] == row["path"];
        let before = plain.iter().find(same).unwrap_or_else(|| panic!("only presets: {row}"));
        let count = |row| number(row, "blocks_recovered");
        assert!(count(row) >= count(before), "{row} {before}");
        assert!(presets().iter().any(|name| row["subject"] == *name), "{row}");
    }
}

#[test]
fn peers_say_why_they_have_no_part() {
    let mut command = Command::cargo_bin("zonal-bench").expect("the binary of this crate");
    let line = "bench fragment --compact --threads 1 --subjects free-list --memory 64M";
    command.args(line.split_whitespace());
    command.assert().code(1).stderr(contains("free-list").and(contains("does not move pages")));
}

#[test]
fn what_was_published_stands_under_the_table() {
    if !two_cpus() {
        return;
    }
    let mut command = Command::cargo_bin("zonal-bench").expect("the binary of this crate");
    let line = "bench thp-mix --samples 1 --memory 512M --preset Linux416 --path shared";
    command.args(line.split_whitespace());
    let said = command.assert().success();
    let said = said.stdout(contains("published (other machines; ratios only)"));
    let said = said.stdout(contains("10540254").and(contains("M/s")));
    said.stdout(contains("Holds of the zone lock").and(contains("longest")));
}

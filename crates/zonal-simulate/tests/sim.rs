//! `zonal sim`: what it prints, and what it says to impossible arguments.

#[path = "../../zonal-reproduce/tests/fake/mod.rs"]
mod fake;

use std::path::Path;

use assert_cmd::Command;
use clap::Parser;
use fake::exact;
use predicates::str::contains;
use serde_json::Value;
use zonal_cli::error::Failure;
use zonal_simulate::command::run_on;
use zonal_simulate::error::SimulateError;
use zonal_simulate::{self, Cli};

fn printed(line: &str) -> (String, Result<(), SimulateError>) {
    let line = format!("zonal sim {line} --no-progress");
    let zonal_simulate::Command::Sim(args) = Cli::parse_from(line.split_whitespace()).command;
    let mut out = Vec::new();
    let result = run_on(&exact(), &args, &mut out);
    (String::from_utf8(out).expect("UTF-8"), result)
}

/// Runs the command with `line`, which must be refused as bad input with each of `said`.
fn refused(line: &str, said: &[&str]) {
    let mut command = Command::cargo_bin("zonal-simulate").expect("the binary of this crate");
    let mut run = command.arg("sim").args(line.split_whitespace()).assert().code(2).stdout("");
    for text in said {
        run = run.stderr(contains(*text));
    }
}

#[test]
fn a_table_has_figures_and_spins() {
    let (text, result) =
        printed("skylake_2s_112cpu page-fault1 --preset linux416,skip-merge --tasks 112");
    result.expect("it runs");
    // Names are broken between words to fit their columns.
    let names = ["faults", "per s", "1/s", "zone", "lock", "spin", "alloc"];
    for wanted in ["Linux416", "SkipMerge", "42.0", "80.0"].into_iter().chain(names) {
        assert!(text.contains(wanted), "no {wanted} in {text}");
    }
    assert!(!text.contains("frames"), "the profile was not asked for: {text}");
}

#[test]
fn json_is_an_object_a_run() {
    let (text, result) = printed(
        "skylake_2s_112cpu page-fault1 --preset Linux416,Cluster --tasks 56,112 --json --seed 7",
    );
    result.expect("it runs");
    let runs: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let order: Vec<_> =
        runs.iter().map(|run| (run["preset"].clone(), run["tasks"].clone())).collect();
    let expected = [("Linux416", 56), ("Linux416", 112), ("Cluster", 56), ("Cluster", 112)];
    assert_eq!(order, expected.map(|(preset, tasks)| (preset.into(), tasks.into())));
    let base = &runs[1];
    assert_eq!(base["zone_lock_spin"], 80.0);
    assert_eq!(base["zone_lock_spin_alloc"], 42.0);
    assert_eq!(base["lru_lock_spin"], 5.0);
    assert_eq!((&base["seed"], &base["lru"]), (&7.into(), &"node".into()));
    assert!(base["faults_per_s"].is_f64());
    // The same as rows, as `zonal reproduce` has them.
    assert_eq!(base["kernel"], "Linux416");
    let rows = base["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["metric"] == "zone_lock_spin_alloc").expect("a row");
    assert_eq!((&row["simulated"], &row["unit"]), (&42.0.into(), &"percent_cycles".into()));
    assert_eq!(base["locks"][0]["waited"], 800_000);
    assert_eq!(base["lines"][0]["near"], 3);
}

#[test]
fn what_is_off_is_said_wherever_figures_are() {
    let line = "skylake_2s_112cpu page-fault1 --preset Linux416,SplitZones";
    let said = "off, SplitZones on 112 CPUs: splitting of all of it: a fake's";
    let count = |text: &str| text.matches(said).count();
    assert_eq!(count(&printed(line).0), 1);
    assert_eq!(count(&printed(&format!("{line} --profile")).0), 2, "in the profile too");
    let (text, _) = printed(&format!("{line} --json"));
    let off = |line: &str| serde_json::from_str::<Value>(line).expect("an object")["off"].clone();
    let off: Vec<Value> = text.lines().map(off).collect();
    assert_eq!(off[0], serde_json::json!([]));
    assert_eq!(off[1], serde_json::json!(["splitting of all of it: a fake's"]));
}

#[test]
fn several_lru_locks_are_several_runs() {
    let line = "skylake_2s_112cpu page-fault1 --preset Zonal --lru node,split,none,node";
    let (text, result) = printed(line);
    result.expect("it runs");
    assert!(text.contains("LRU lock: node, split, none"), "{text}");
    // The table is in two parts, to fit.
    assert_eq!(text.matches("LRU split").count(), 2, "{text}");
    assert_eq!(text.matches("LRU node").count(), 2, "{text}");
    let (text, _) = printed(&format!("{line} --json"));
    let lru = |line: &str| serde_json::from_str::<Value>(line).expect("an object")["lru"].clone();
    assert_eq!(text.lines().map(lru).collect::<Vec<_>>(), ["node", "split", "none"]);
}

#[test]
fn a_preset_has_the_lru_lock_of_its_kernel_if_none_is_asked_for() {
    let locks = |options: &str| -> Vec<Value> {
        let presets = "Linux316,FairZone,Linux413,Linux416,Cluster,Linux63,SplitZones,Zonal";
        let line = format!("skylake_2s_112cpu page-fault1 --json --preset {presets} {options}");
        let (text, result) = printed(&line);
        result.expect("it runs");
        let runs = text.lines().map(|line| serde_json::from_str(line).expect("an object"));
        runs.map(|run: Value| run["lru"].clone()).collect()
    };
    let own = ["zone", "zone", "node", "node", "node", "split", "split", "split"];
    assert_eq!(locks(""), own);
    assert_eq!(locks("--lru zone"), ["zone"; 8]);
    let (text, _) = printed("skylake_2s_112cpu page-fault1 --preset Linux416,Zonal");
    assert!(text.contains("LRU lock: node, split"), "{text}");
}

#[test]
fn waiting_for_lines_is_among_the_results() {
    let (text, _) = printed("skylake_2s_112cpu page-fault1 --preset Zonal --json");
    let run: Value = serde_json::from_str(text.lines().next().expect("a run")).expect("an object");
    assert_eq!(run["line_wait"], 0.002, "20 of a million cycles");
}

#[test]
fn threads_do_not_show() {
    let line = "broadwell_2s_40cpu page-fault1 --tasks 1,2,3,5,8,13,21,34 --json --jobs";
    assert_eq!(printed(&format!("{line} 1")).0, printed(&format!("{line} 4")).0);
}

#[test]
fn there_are_no_more_threads_than_runs() {
    let line = "desktop_8cpu_4g page-fault1 --preset Zonal --tasks 1,2 --json --jobs";
    assert_eq!(printed(&format!("{line} 4000000000")).0, printed(&format!("{line} 1")).0);
}

#[test]
fn the_profile_is_by_lock_and_by_line() {
    let (text, _) = printed("skylake_2s_112cpu page-fault1 --preset Linux416 --profile");
    for wanted in ["zone × 2", "zone 0", "80.00", "frames", "transferred"] {
        assert!(text.contains(wanted), "no {wanted} in {text}");
    }
}

#[test]
fn csv_has_a_line_for_each_number() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("runs.csv");
    let line = format!("skylake_2s_112cpu page-fault1 --preset Linux416 --csv {}", path.display());
    printed(&line).1.expect("it runs");
    let text = std::fs::read_to_string(&path).expect("it is there");
    let head =
        "machine,workload,kernel,tasks,lru,seed,quick,delay_ms,after,regions,metric,value,unit";
    assert!(text.starts_with(head), "{text}");
    let run = "skylake_2s_112cpu,page-fault1,Linux416,112,node,1,false,0,,";
    assert!(text.contains(&format!("{run},zone_lock_spin,80,percent_cycles")), "{text}");
    let profile = ["locks.zone.0.waited,800000,cycles", "lines.frames.near,3,count"];
    assert!(profile.iter().all(|it| !text.contains(it)), "it was not asked for: {text}");
    printed(&format!("{line} --profile")).1.expect("it runs");
    let text = std::fs::read_to_string(&path).expect("it is there");
    assert!(profile.iter().all(|it| text.contains(&format!("{run},{it}"))), "{text}");
}

#[test]
fn csv_and_table_tell_all_that_runs_differ_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("runs.csv");
    let line = "skylake_2s_112cpu thp-mix --preset Zonal --lru node --after 3 --regions 7";
    let (text, result) = printed(&format!("{line} --csv {}", path.display()));
    result.expect("it runs");
    assert!(text.contains("after 3 million single pages, regions: 7"), "{text}");
    let text = std::fs::read_to_string(&path).expect("it is there");
    let run = "skylake_2s_112cpu,thp-mix,Zonal,112,node,1,false,0,3,7,";
    assert!(text.lines().skip(1).all(|line| line.starts_with(run)), "{text}");
}

#[test]
fn a_run_that_fails_is_named() {
    let line = "zonal sim skylake_2s_112cpu kbuild --preset Zonal --no-progress";
    let zonal_simulate::Command::Sim(args) = Cli::parse_from(line.split(' ')).command;
    let fake = fake::Fake { fails: Some(zonal_sim::run::Workload::Kbuild), ..exact() };
    let error = run_on(&fake, &args, &mut Vec::new()).expect_err("it fails");
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("Zonal on 112 CPUs"), "{error}");
}

#[test]
fn unknown_names_list_the_known_ones() {
    refused("skylake page-fault1", &["`skylake`", "skylake_2s_112cpu", "desktop_8cpu_4g"]);
    refused("desktop_8cpu_4g page-fault9", &["page-fault9", "stress-highalloc"]);
    refused("desktop_8cpu_4g page-fault1 --preset Linux9", &["`Linux9`", "SkipMerge"]);
    refused("desktop_8cpu_4g page-fault1 --lru both", &["both", "split"]);
}

#[test]
fn more_tasks_than_cpus() {
    refused("desktop_8cpu_4g page-fault1 --tasks 9", &["9 tasks", "desktop_8cpu_4g", "1 to 8"]);
    refused("desktop_8cpu_4g page-fault1 --tasks 4,0", &["0 tasks"]);
}

#[test]
fn machine_files_that_will_not_do() {
    refused("./nowhere.toml page-fault1", &["cannot be read", "nowhere.toml"]);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("broken.toml");
    std::fs::write(&path, "name = \"broken\"\ntitle = 3\n").expect("it can be written");
    let said = |path: &Path| path.display().to_string();
    refused(&format!("{} page-fault1", said(&path)), &["broken.toml:2:", "string"]);
}

#[test]
fn what_does_not_fit_is_refused_once_and_before_anything_is_run() {
    refused("desktop_8cpu_4g netperf --tasks 8,3", &["netperf does not fit", "an even number"]);
    refused("skylake_2s_112cpu page-cache", &["one socket"]);
    refused("desktop_8cpu_4g thp-mix --tasks 1", &["an even number"]);
    let mut command = Command::cargo_bin("zonal-simulate").expect("the binary of this crate");
    let said = command.args(["sim", "skylake_2s_112cpu", "page-cache"]).output().expect("it runs");
    let said = String::from_utf8(said.stderr).expect("UTF-8");
    assert_eq!(said.matches("does not fit").count(), 1, "{said}");
}

#[test]
fn a_pause_is_for_requests_for_huge_pages_only() {
    let said = ["--after", "has no meaning for page-fault1", "thp-mix"];
    refused("desktop_8cpu_4g page-fault1 --after 5", &said);
    let said = ["--delay-ms", "has no meaning for page-fault1", "stress-highalloc"];
    refused("desktop_8cpu_4g page-fault1 --delay-ms 100", &said);
    let line = "desktop_8cpu_4g stress-highalloc --preset Zonal --quick --delay-ms 100";
    let (text, result) = printed(line);
    result.expect("it runs");
    assert!(text.contains("100 ms between requests, quick"), "{text}");
}

#[test]
fn a_file_is_kept_when_there_is_nothing_to_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("runs.csv");
    std::fs::write(&path, "before").expect("it can be written");
    let path = path.display();
    let line =
        format!("zonal sim desktop_8cpu_4g kbuild --preset Zonal --no-progress --csv {path}");
    let zonal_simulate::Command::Sim(args) = Cli::parse_from(line.split(' ')).command;
    let fake = fake::Fake { fails: Some(zonal_sim::run::Workload::Kbuild), ..exact() };
    run_on(&fake, &args, &mut Vec::new()).expect_err("it fails");
    assert_eq!(std::fs::read_to_string(path.to_string()).expect("it is there"), "before");
    std::fs::remove_file(path.to_string()).expect("it is there");
    run_on(&fake, &args, &mut Vec::new()).expect_err("it fails");
    assert_eq!(directory.path().read_dir().expect("it is there").count(), 0, "nothing is left");
}

#[test]
fn the_list_names_what_the_command_takes() {
    let (text, result) = printed("--list");
    result.expect("it needs no machine");
    for name in ["skylake_2s_112cpu", "stress-highalloc", "Linux416"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn the_template_is_a_machine_that_can_be_simulated() {
    let (text, result) = printed("--template");
    result.expect("it needs no machine");
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a file");
    std::fs::write(file.path(), text).expect("it can be written");
    let line = format!("{} kbuild --preset Zonal --tasks 2", file.path().display());
    let (text, result) = printed(&line);
    result.expect("it runs");
    assert!(text.contains("2 sockets, 112 CPUs"), "{text}");
}

#[test]
fn ranges_of_tasks_have_a_chart() {
    let line = "skylake_2s_112cpu page-fault1 --preset Zonal,Linux416";
    let (text, result) = printed(&format!("{line} --tasks 1..4,4,112"));
    result.expect("it runs");
    let chart = text.lines().position(|line| line.contains("by tasks; █ is")).expect("a chart");
    let lines: Vec<&str> = text.lines().skip(chart + 1).take(3).collect();
    assert!(lines[0].starts_with("Zonal") && lines[1].starts_with("Linux416"), "{text}");
    let tasks: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(tasks, ["tasks", "1", "2", "4", "112"]);
    let (text, _) = printed(&format!("{line} --tasks 1,2"));
    assert!(!text.contains("by tasks"), "two points make no curve: {text}");
}

#[test]
fn a_row_says_where_it_is_from() {
    let (text, result) = printed("skylake_2s_112cpu kbuild --preset Zonal --json");
    result.expect("it runs");
    let row: Value = serde_json::from_str(&text).expect("an object");
    assert!(row["host"].is_string() && row["date"].is_string(), "{row}");
    assert_eq!(row["version"], env!("CARGO_PKG_VERSION"));
    assert!(row.as_object().is_some_and(|row| row.contains_key("commit")), "{row}");
}

#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    for line in ["--help", "--version", "sim --help"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux");
        let program = assert_cmd::cargo::cargo_bin("zonal-simulate");
        let mut command = std::process::Command::new(program);
        let run = command.args(line.split(' ')).stdout(full).output().expect("it starts");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("cannot print the results"), "{line}: {said}");
    }
}

#[test]
fn what_it_prints_fits_and_has_colours_on_terminals_only() {
    let program = assert_cmd::cargo::cargo_bin("zonal-simulate");
    zonal_cli::checks::fits(&program, &["sim --help", "sim --list"]);
    zonal_cli::checks::colours(&program, "sim --list");
}

//! `zonal calibrate` as a user meets it, on the machine the tests run on.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{self, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use zonal_calibrate::survey::LEAST_ROUNDS;
use zonal_sim::machine::Machine;

fn calibrate(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("zonal-calibrate").expect("the binary of this crate");
    command.arg("calibrate").args(arguments);
    command
}

/// One survey at a time: two would measure each other.
fn alone() -> MutexGuard<'static, ()> {
    static SURVEYING: Mutex<()> = Mutex::new(());
    SURVEYING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn cpus() -> usize {
    zonal_bench::machine::cpus().expect("affinity").len()
}

/// Whether a machine's survey had rounds enough for its medians to be those of the machine.
fn had_rounds_enough(machine: &Machine) -> bool {
    let stopped = machine.source.split_once("stopped after ");
    let rounds = stopped.and_then(|(_, rest)| rest.split_once(" of ")).map(|(rounds, _)| rounds);
    rounds.is_none_or(|rounds| rounds.parse::<usize>().expect("a number") >= LEAST_ROUNDS)
}

/// What no machine can have otherwise.
fn check_physics(machine: &Machine) {
    let cost = &machine.cost;
    assert!(cost.private < cost.shared, "{cost:?}");
    assert!(cost.private < cost.memory, "{cost:?}");
    assert!(cost.streamed < cost.memory, "{cost:?}");
    assert!(cost.private < cost.near, "{cost:?}");
    assert!(machine.cache.private_kib < machine.cache.shared_kib);
    assert!((0.5..8.0).contains(&machine.clock.nominal_ghz), "{:?}", machine.clock);
    let turbo = &machine.clock.turbo_ghz;
    assert!(turbo.is_sorted_by(|fewer, more| fewer >= more), "{turbo:?}");
    assert!(machine.topology.cpus() as usize >= cpus(), "{:?}", machine.topology);
    let kernel = &machine.kernel;
    assert!(kernel.unmap_page < kernel.fault, "{kernel:?}");
    assert!(kernel.fault < kernel.wake * 100.0 && kernel.fault > 10.0, "{kernel:?}");
}

#[test]
fn the_machine_file_reads_back_and_makes_sense() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("box.toml");
    let _alone = alone();
    // The machine may have other things to do, and be too busy for a file that is not forced.
    let line = ["--quick", "--force", "--name", "my-box", "--out", text(&file)];
    calibrate(&line)
        .assert()
        .success()
        .stdout(contains("locked add").and(contains("Not measured:")).and(contains("box.toml")));
    let machine = Machine::load(&file).expect("what it wrote");
    assert_eq!(machine.name, "my-box");
    assert!(machine.source.contains("lru_add"), "it says what is a default: {}", machine.source);
    // Seconds may be enough for a round or two only.
    if had_rounds_enough(&machine) {
        check_physics(&machine);
    } else {
        let whole = folder.path().join("whole.toml");
        calibrate(&["--force", "--out", text(&whole)]).assert().success();
        let machine = Machine::load(&whole).expect("what it wrote");
        if had_rounds_enough(&machine) {
            check_physics(&machine);
        } else {
            eprintln!("SKIPPED: too slow or too busy to be measured: {}", machine.source);
        }
    }

    let before = fs::read_to_string(&file).expect("there");
    let comments = before.lines().filter(|line| line.contains(" # ")).count();
    assert!(comments > 30, "{before}");
    let again = calibrate(&["--quick", "--out", text(&file)]);
    let said = contains("exists already").and(contains("--force")).and(contains("box.toml"));
    { again }.assert().code(2).stdout("").stderr(said);
    assert_eq!(fs::read_to_string(&file).expect("there"), before, "untouched");
}

#[test]
fn json_has_every_figure_and_every_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("old.toml");
    fs::write(&file, "not a machine, and longer than what replaces it\n".repeat(400))
        .expect("written");
    let line = ["--quick", "--json", "--force", "--out", text(&file)];
    let _alone = alone();
    let output = calibrate(&line).assert().success().get_output().stdout.clone();
    let machine = Machine::load(&file).expect("what was there is gone");
    let output = String::from_utf8(output).expect("UTF-8");
    let records: Vec<Value> =
        output.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    let of = |kind: &'static str| records.iter().filter(move |record| record["record"] == kind);
    assert_eq!(of("machine").count(), 1);
    assert_eq!(of("machine").next().expect("one")["name"], "this_machine");
    let mut names = HashSet::new();
    for figure in of("figure") {
        assert!(names.insert(figure["name"].to_string()), "twice: {figure}");
        let number = |key: &str| figure[key].as_f64().expect("a number");
        assert!(0.0 < number("min") && number("min") <= number("median"), "{figure}");
        assert!(number("median") <= number("max"), "{figure}");
        assert!(number("samples") >= 1.0, "{figure}");
    }
    for name in ["load_inner", "load_memory", "locked_add", "fault_new_page", "wake_same_cpu"] {
        assert!(names.contains(&format!("{name:?}")), "{name}: {names:?}");
    }
    assert_eq!(of("pair").count() > 0, cpus() > 1);
    let values = serde_json::to_value(&machine).expect("JSON");
    let tables = ["topology", "clock", "cache", "cost", "kernel"];
    let wanted = tables.iter().map(|table| values[table].as_object().expect("a table").len());
    assert_eq!(of("field").count(), wanted.sum::<usize>());
    for field in of("field") {
        let (table, key) = (field["table"].as_str().expect("text"), field["key"].as_str());
        assert_eq!(field["value"], values[table][key.expect("text")], "{field}");
        assert!(["measured", "described", "default"].contains(&field["origin"].as_str().unwrap()));
    }
}

#[test]
fn an_interrupted_survey_shows_what_it_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("box.toml");
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin("zonal-calibrate"));
    command.args(["calibrate", "--out", text(&file)]);
    let _alone = alone();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let output = zonal_cli::checks::press_ctrl_c(child, Duration::from_millis(500));
    let string = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (shown, said) = (string(output.stdout), string(output.stderr));
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted after ") && said.contains(" of 151 rounds"), "{said}");
    assert!(shown.contains("locked add") && shown.contains("rounds: interrupted."), "{shown}");
    // How many rounds there were is the machine's affair, and with it whether there is a file.
    assert_eq!(file.exists(), shown.contains("The machine file is"), "{shown}");
    assert_eq!(file.exists(), !said.contains("no file is written"), "{said}");
}

#[test]
fn bad_arguments_are_refused_before_anything_is_measured() {
    let refused = |line: &[&str], said: &str| {
        calibrate(line).assert().code(2).stdout("").stderr(contains(said));
    };
    refused(&["--name", "My Box"], "a-z");
    refused(&["--force"], "--out");
    refused(&["--slow"], "--slow");
    refused(&["surplus"], "surplus");
    refused(&["--out", "/nonexistent/box.toml"], "cannot write /nonexistent/box.toml");
    refused(&["--force", "--out", "/"], "cannot write /");
}

#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    for line in ["--help", "--version", "calibrate --help"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux");
        let program = assert_cmd::cargo::cargo_bin("zonal-calibrate");
        let mut command = std::process::Command::new(program);
        let run = command.args(line.split(' ')).stdout(full).output().expect("it starts");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("cannot print the results"), "{line}: {said}");
    }
}

#[test]
fn what_it_prints_fits_and_has_colours_on_terminals_only() {
    let program = assert_cmd::cargo::cargo_bin("zonal-calibrate");
    let _alone = alone();
    zonal_cli::checks::fits(&program, &["calibrate --help", "calibrate --quick --no-progress"]);
    zonal_cli::checks::colours(&program, "calibrate --help");
}

//! The benchmarks as a user meets them, and what the model must show at a small scale.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use zonal_iobench::kernel::{KERNELS, Kernel};
use zonal_iobench::machine::{MACHINES, Machine};
use zonal_iobench::program::{Phase, Tiobench};
use zonal_iobench::simulated::{Case, Outcome, simulate};

fn iobench(line: &str) -> Command {
    let mut command = Command::cargo_bin("zonal-iobench").expect("the binary of this crate");
    command.args(line.split_whitespace());
    command
}

fn json(line: &str) -> Vec<Value> {
    let output = iobench(line).assert().success().get_output().stdout.clone();
    let text = String::from_utf8(output).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A part of the desktop.
fn run(kernel: &str, threads: u32, part: u64) -> Outcome {
    let machine = Machine { frames: MACHINES[0].frames / part, ..MACHINES[0] };
    let kernel = Kernel::named(kernel).expect("it is in the tables");
    let tiobench = Tiobench { threads, pages: 2 * machine.frames, random: 200, seed: 1 };
    simulate(&Case { machine, kernel, tiobench }).expect("it runs")
}

#[test]
fn every_kernel_reads_and_writes_all_blocks() {
    for kernel in KERNELS {
        for threads in [1, 3] {
            let outcome = run(kernel.name, threads, 100);
            let pages = 2 * (MACHINES[0].frames / 100) / u64::from(threads) * u64::from(threads);
            let blocks = Phase::ALL.map(|phase| outcome.phases[phase as usize].blocks);
            let random = 200_u64.div_ceil(threads.into()) * u64::from(threads);
            assert_eq!(blocks, [pages, random, pages, random], "{}", kernel.name);
            assert!(Phase::ALL.iter().all(|phase| outcome.mib_s(*phase) > 0.1));
            let cached = outcome.allocated[0] + outcome.allocated[1];
            let read = outcome.phases[Phase::SeqRead as usize];
            assert!(cached >= pages + read.blocks - read.hits, "what is not cached is allocated");
        }
    }
}

/// The fair walk turns both zones over alike, and nothing of the file is left when it is read; first
/// fit leaves the lower zone alone while the upper one is topped up, and some is.
#[test]
fn first_fit_keeps_what_the_fair_walk_loses() {
    let cached = |kernel| {
        // In its real size: watermarks do not shrink with memory.
        let outcome = run(kernel, 1, 1);
        let read = outcome.phases[Phase::SeqRead as usize];
        (read.hits as f64 / read.blocks as f64, outcome.dma32_scanned_share())
    };
    let ((fair, fair_share), (first, first_share)) = (cached("3.16-rc1"), cached("bigbatches"));
    assert!(fair < 0.01 && (35.0..42.0).contains(&fair_share), "{fair} {fair_share}");
    assert!(first > 0.03 && first_share < 25.0, "{first} {first_share}");
}

#[test]
fn a_longer_target_latency_helps_many_readers_and_no_single_one() {
    let rate = |kernel, threads| run(kernel, threads, 16).mib_s(Phase::SeqRead);
    assert!((rate("cfq600", 1) / rate("3.16-rc1", 1) - 1.0).abs() < 0.005);
    assert!(rate("cfq600", 16) > rate("3.16-rc1", 16) * 1.03);
}

/// The watermarks shrink with memory where it is small; less memory than that is refused.
#[test]
fn the_smallest_memory_is_enough_for_every_kernel() {
    for kernel in KERNELS {
        let outcome = run(kernel.name, 2, 512);
        assert!(outcome.mib_s(Phase::SeqRead) > 1.0, "{}", kernel.name);
    }
    iobench("tiobench --threads 64 --scale 512 --kernel 3.0,3.16-rc1").assert().success();
}

#[test]
fn a_simulation_is_the_same_again() {
    let line = "tiobench --threads 2 --scale 100 --kernel fairzone --json";
    let run = || {
        let mut rows = json(line);
        rows.iter_mut().for_each(|row| {
            row.as_object_mut().expect("an object").remove("date");
        });
        rows
    };
    assert_eq!(run(), run());
}

#[test]
fn real_files_are_made_and_removed_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().display();
    let rows = json(&format!("tiobench {at} --threads 1,3 --size 4M --random 50 --json"));
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["kind"], "measured");
        for phase in Phase::ALL {
            assert!(row[phase.name()].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
        }
    }
    let row = &json(&format!("sparsetruncate {at} --files 8 --size 256K --json"))[0];
    assert!(row["Min"].as_f64() <= row["Max"].as_f64() && row["Amean"].as_f64() > Some(0.0));
    iobench(&format!("bonnie {at} --files 64")).assert().success().stdout(contains("Rand"));
    let line = format!("dbench {at} --clients 1,2 --duration 20ms");
    iobench(&line).assert().success().stdout(contains("longest"));
    assert_eq!(directory.path().read_dir().expect("it is there").count(), 0);
}

#[test]
fn what_is_wrong_is_said() {
    let wrong = |line: &str, said: &str| {
        iobench(line).assert().code(2).stderr(contains(said));
    };
    wrong("tiobench --machine pdp11", "desktop_2xRAM_ext3");
    wrong("tiobench --kernel 2.4", "bigbatches1node");
    wrong("tiobench --threads 0", "0 is not in 1..=1024");
    wrong("tiobench --scale 513", "too little");
    wrong("tiobench --size 2T --threads 1", "files of");
    wrong("tiobench somewhere --kernel 3.0", "cannot be used with");
    let nowhere = iobench("bonnie /nonexistent/x").assert().code(1);
    nowhere.stderr(contains("cannot make").and(contains("/nonexistent/x")));
}

/// The soft limit is raised; beyond the hard one it is said.
#[test]
fn as_many_files_are_open_as_may_be() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().display();
    let limited = |limit: &str, line: &str| {
        let program = env!("CARGO_BIN_EXE_zonal-iobench");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit {limit} 60 && exec {program} {line}")]);
        command.assert()
    };
    let truncate = format!("sparsetruncate {at} --files 100 --size 4K");
    let tiobench = format!("tiobench {at} --threads 80 --size 1M --random 1");
    for line in [&truncate, &tiobench] {
        limited("-Sn", line).success();
        limited("-n", line).code(2).stderr(contains("files are to be open at once"));
    }
    assert_eq!(directory.path().read_dir().expect("it is there").count(), 0);
}

#[test]
fn arguments_of_any_size_are_computed_with() {
    for line in [
        "tiobench --scale 512 --threads 1 --random 1 --seed 5000000000000000",
        "tiobench --scale 512 --threads 2 --random 1 --seed 18446744073709551615",
    ] {
        iobench(line).assert().success();
    }
    for line in ["bonnie --size 8191P", "bonnie --size 8191P --files 3", "tiobench --size 8191P"] {
        iobench(line).assert().code(2).stderr(contains("files of"));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().display();
    // Longer than a file can be.
    let line = format!("sparsetruncate {at} --files 1 --size 16383P");
    iobench(&line).assert().code(1).stderr(contains("cannot grow"));
    iobench(&format!("bonnie {at} --files 2 --size 5M")).assert().success();
}

#[test]
fn what_was_measured_before_an_interrupt_is_shown() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_zonal-iobench"));
    command.arg("dbench").arg(directory.path()).args(["--duration", "500ms", "--json"]);
    command.args(["--clients", &["1"; 40].join(","), "--no-progress"]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    // Of forty runs of half a second some are done by then, and not all.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let signal = ["-INT".to_owned(), child.id().to_string()];
    let sent = std::process::Command::new("kill").args(signal).status().expect("there is a kill");
    let output = child.wait_with_output().expect("it ends");
    assert!(sent.success() && output.status.code() == Some(130), "{output:?}");
    let rows = String::from_utf8_lossy(&output.stdout).lines().count();
    assert!((1..40).contains(&rows), "{rows} rows");
    let left = std::fs::read_dir(directory.path()).expect("it is there").count();
    assert_eq!(left, 0, "its files are removed");
}

#[test]
fn what_is_printed_fits_and_has_colours_on_terminals_only() {
    let program = assert_cmd::cargo::cargo_bin("zonal-iobench");
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().display();
    let real = [
        format!("tiobench {at} --threads 1,3 --size 4M --random 50"),
        format!("sparsetruncate {at} --files 8 --size 256K"),
        format!("bonnie {at} --files 64 --size 8K"),
        format!("dbench {at} --clients 1,2 --duration 20ms"),
    ];
    let help =
        ["tiobench", "sparsetruncate", "bonnie", "dbench"].map(|name| name.to_owned() + " --help");
    let simulated =
        ["tiobench --threads 1,2", "sparsetruncate", "bonnie --scale 200", "dbench --clients 4"];
    let simulated = simulated.map(|line| match line {
        "tiobench --threads 1,2" => line.to_owned() + " --scale 200",
        line => line.to_owned(),
    });
    let lines: Vec<&str> = real.iter().chain(&help).chain(&simulated).map(String::as_str).collect();
    zonal_cli::checks::fits(&program, &lines);
    zonal_cli::checks::colours(&program, "tiobench --threads 1 --scale 200 --no-progress");
}

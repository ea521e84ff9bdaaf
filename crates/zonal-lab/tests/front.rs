//! The `zonal` command as a user meets it: the first run, what it refuses itself, and how it hands
//! a command to the program that has it.

use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn zonal(line: &str) -> Command {
    let mut command = Command::cargo_bin("zonal").expect("the binary of this crate");
    command.args(line.split_whitespace());
    command
}

/// The command, installed in a directory of its own.
struct Installed {
    directory: tempfile::TempDir,
    zonal: PathBuf,
}

/// Installs a program. By another process: a file that this one has open for writing while another
/// test starts a program cannot be started itself ("text file busy").
fn install(from: &Path, content: &str, to: &Path) {
    let mut command = Command::new("install");
    command.args(["-m", "755"]).arg(from).arg(to).write_stdin(content).assert().success();
}

impl Installed {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let zonal = directory.path().join("zonal");
        install(&assert_cmd::cargo::cargo_bin("zonal"), "", &zonal);
        Self { directory, zonal }
    }

    /// Puts a script in place of another program.
    fn with(self, program: &str, script: &str) -> Self {
        let path = self.directory.path().join(program);
        install(Path::new("/dev/stdin"), &format!("#!/bin/sh\n{script}\n"), &path);
        self
    }

    fn run(&self, line: &str) -> Command {
        let mut command = Command::new(&self.zonal);
        command.args(line.split_whitespace());
        command
    }
}

#[test]
fn without_arguments_it_runs_and_explains_itself() {
    let run = zonal("").env_remove("COLUMNS").assert().success();
    let run = run.stdout(contains("page-fault1").and(contains("bench page-fault1")));
    // Here, and not with the other lines: it measures for seconds.
    zonal_cli::checks::text_fits("", &String::from_utf8_lossy(&run.get_output().stdout));
}

#[test]
fn the_help_names_every_command() {
    let commands = [
        "bench",
        "info",
        "sim",
        "record",
        "replay",
        "reproduce",
        "iosched",
        "tiobench",
        "sparsetruncate",
        "bonnie",
        "dbench",
        "calibrate",
        "cachetrace",
        "mount",
    ];
    let help = zonal("help").assert().success();
    commands.into_iter().fold(help, |help, command| help.stdout(contains(command)));
    zonal("help bench").assert().success().stdout(contains("--subjects"));
}

/// Of a program whose output goes nowhere: its exit code and what it says of that.
fn unprinted(program: &Path, line: &str) -> (Option<i32>, String) {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux");
    let mut command = process::Command::new(program);
    let output = command.args(line.split_whitespace()).stdout(full).output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    let zonal = assert_cmd::cargo::cargo_bin("zonal");
    for line in ["--help", "--version", "help", "help bench", "bench --help"] {
        let (code, said) = unprinted(&zonal, line);
        assert_eq!(code, Some(1), "{line}: {said}");
        assert!(said.contains("cannot print the results: No space left"), "{line}: {said}");
    }
    let (code, said) = unprinted(&zonal, "bench nonsense");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("nonsense"), "{said}");
}

#[test]
fn what_is_compiled_in_is_measured_here() {
    let line =
        "bench hot-pair --subjects Zonal,free-list --path owned --threads 1 --samples 1 --json";
    let run = Installed::new().run(line).assert().success();
    run.stdout(contains(r#""subject":"Zonal""#).and(contains(r#""subject":"free-list""#)));
}

#[test]
fn bad_arguments_are_refused_without_the_program_that_would_take_them() {
    let installed = Installed::new();
    for (line, said) in [
        ("bench hot-pair --subjects nosuch", "no subject is called `nosuch`"),
        ("bench hot-pair --preset mimalloc", "no preset is called `mimalloc`"),
        ("bench mixed --threads 0", "--threads 0"),
        ("bench page-fault9", "page-fault9"),
        ("nonsense", "unrecognized subcommand 'nonsense'"),
    ] {
        installed.run(line).assert().code(2).stdout("").stderr(contains(said));
    }
}

#[test]
fn a_program_that_is_not_there_is_named_with_what_to_install() {
    let installed = Installed::new();
    for (line, package) in [
        ("sim skylake_2s_112cpu page-fault1", "zonal-simulate"),
        ("bench mixed", "zonal-bench-all"),
        ("reproduce", "zonal-reproduce"),
        ("replay trace.txt", "zonal-replay"),
        ("iosched", "zonal-iosched"),
        ("tiobench", "zonal-iobench"),
        ("calibrate", "zonal-calibrate"),
        ("cachetrace trace.csv", "zonal-cachetrace"),
        ("mount below root", "zonal-mount"),
    ] {
        let install = format!("`cargo install {package}`");
        installed.run(line).assert().code(1).stdout("").stderr(contains(install));
    }
}

#[test]
fn another_program_takes_over_arguments_output_and_exit_code() {
    let script = r#"printf '%s\n' "$@"; echo said >&2; exit 7"#;
    let installed = Installed::new().with("zonal-simulate", script);
    let run = installed.run("sim a b --json --help").assert().code(7);
    run.stdout("sim\na\nb\n--json\n--help\n").stderr("said\n");
    installed.run("help sim").assert().code(7).stdout("sim\n--help\n");
    let killed = Installed::new().with("zonal-simulate", "kill -TERM $$");
    killed.run("sim").assert().interrupted();
}

#[test]
fn a_bench_of_what_is_not_compiled_in_goes_to_the_program_that_has_it() {
    let installed = Installed::new().with("zonal-bench", r#"echo "$*""#);
    for line in [
        "bench mixed --subjects Zonal",
        "bench hot-pair",
        "bench hot-pair --preset Linux416 --json",
        "info --memory 64M",
    ] {
        installed.run(line).assert().success().stdout(format!("{line}\n"));
    }
}

/// A bench that would take minutes, interrupted soon: its exit code, output and remarks.
fn interrupted() -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin("zonal"));
    command.args("bench hot-pair --subjects free-list --threads 1 --json --no-progress".split(' '));
    command.args(["--duration", "300"]);
    command.current_dir(directory.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let output = zonal_cli::checks::press_ctrl_c(child, Duration::from_millis(500));
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_bench_that_is_ended_leaves_no_empty_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin("zonal"));
    command.args("bench hot-pair --subjects free-list --threads 1 --no-progress".split(' '));
    command.args(["--duration", "300", "--out", "rows.json", "--csv", "rows.csv"]);
    command.current_dir(directory.path()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // The line about the machine comes when the files are looked at and before the first sample.
    let mut first = [0];
    let out = child.stdout.as_mut().expect("a pipe");
    std::io::Read::read_exact(out, &mut first).expect("a line");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let names: Vec<_> = std::fs::read_dir(directory.path()).expect("there").collect();
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn an_interrupted_bench_shows_what_it_has() {
    let (code, out, said) = interrupted();
    assert_eq!(code, Some(130), "{said}");
    assert!(out.contains(r#""subject":"free-list""#), "{out} {said}");
    assert!(said.contains("interrupted"), "{said}");
}

#[test]
fn what_it_prints_fits_and_has_colours_on_terminals_only() {
    let program = assert_cmd::cargo::cargo_bin("zonal");
    zonal_cli::checks::fits(&program, &["--help", "bench --help"]);
    zonal_cli::checks::colours(&program, "--help");
}

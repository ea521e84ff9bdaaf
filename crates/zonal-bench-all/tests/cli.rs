//! The command as a user meets it: what it prints, and what it says to impossible arguments.

use std::path::Path;

use assert_cmd::Command;
use clap::{CommandFactory, Parser};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use zonal_bench::plan::choose;
use zonal_bench_all::{Cli, Command as Asked, registry};

fn zonal(line: &str) -> Command {
    let mut command = Command::cargo_bin("zonal-bench").expect("the binary of this crate");
    command.args(line.split_whitespace());
    command
}

/// Runs `line`, which must be refused as bad input, with each of `said` on stderr and nothing on
/// stdout.
fn refused(line: &str, said: &[&str]) {
    let mut run = zonal(line).assert().code(2).stdout("");
    for text in said {
        run = run.stderr(contains(*text));
    }
}

/// The JSON objects a line printed.
fn objects(text: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(text).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

fn cpus() -> usize {
    zonal_bench::machine::cpus().expect("affinity").len()
}

#[test]
fn no_threads() {
    refused("bench hot-pair --threads 0", &["--threads 0", "at least 1"]);
    refused("bench hot-pair --threads 1,0", &["--threads 0"]);
}

#[test]
fn more_threads_than_cpus() {
    let asked = (cpus() + 1).to_string();
    refused(&format!("bench hot-pair --threads {asked}"), &[&asked, "CPU"]);
}

#[test]
fn unknown_names_list_the_known_ones() {
    refused("bench page-fault9", &["page-fault9", "page-fault1", "producer-consumer"]);
    refused("bench hot-pair --subjects nosuch", &["`nosuch`", "free-list"]);
    refused("bench hot-pair --subjects free-list,nosuch", &["`nosuch`"]);
    refused("bench hot-pair --preset Linux1", &["preset", "`Linux1`", "known presets"]);
    // A peer is no preset.
    refused("bench hot-pair --preset free-list", &["preset", "`free-list`"]);
    refused("bench hot-pair --path sideways", &["sideways", "owned", "shared"]);
}

#[test]
fn more_memory_than_there_is() {
    refused(
        "bench --subjects free-list page-fault1 --memory 900T",
        &["--memory 900 TiB", "this machine has"],
    );
    refused(
        "bench --subjects free-list page-fault1 --memory 1M --threads 1",
        &["--memory 1 MiB", "needs at least"],
    );
    refused("bench --subjects free-list page-fault1 --memory lots", &["lots", "number"]);
    refused("bench --subjects free-list page-fault1 --memory 0", &["--memory"]);
}

#[test]
fn overcommitted_memory_that_cannot_be_reserved_says_so_and_fails() {
    let line = "bench hot-pair --memory 900T --overcommit --threads 1 --subjects free-list";
    zonal(line).assert().code(1).stderr(contains("free-list").and(contains("manages at most")));
}

#[test]
fn a_workload_that_cannot_run_as_asked() {
    refused(
        "bench producer-consumer --subjects free-list --threads 1",
        &["producer-consumer", "even number"],
    );
    refused("bench hot-pair --subjects free-list --touch", &["--touch", "page-fault1"]);
    refused("bench hot-pair --by-cpu", &["--by-cpu", "hot-pair", "fragment"]);
    refused("bench thp-mix --compact", &["--compact", "thp-mix"]);
    refused("bench hot-pair --delay-ms 7", &["--delay-ms", "hot-pair", "stress-highalloc"]);
    let line = "bench fragment --highalloc-memory 64M";
    refused(line, &["--highalloc-memory", "fragment", "stress-highalloc"]);
    refused("bench fragment --by-cpu --threads 1", &["two threads"]);
    refused("bench thp-mix --threads 1", &["thp-mix", "even number"]);
    refused("bench stress-highalloc --threads 1", &["at least two"]);
    refused(
        "bench stress-highalloc --threads 2 --highalloc-memory 1M",
        &["--memory 1 MiB", "needs at least"],
    );
    refused("bench hot-pair --samples 0", &["--samples"]);
    refused("bench hot-pair --duration 0", &["--duration"]);
    refused("bench", &["WORKLOAD"]);
}

#[test]
fn a_subject_without_the_order_is_named() {
    let line = "bench order9 --threads 1 --subjects free-list";
    zonal(line).assert().code(1).stderr(contains("free-list").and(contains("no order-9")));
}

#[test]
fn unwritable_files_are_found_before_anything_runs() {
    let missing = "/nonexistent-directory/results";
    refused(&format!("bench all --subjects free-list --out {missing}"), &["cannot write", missing]);
    refused(&format!("bench all --subjects free-list --csv {missing}"), &["cannot write", missing]);
    let folder = tempfile::tempdir().expect("a folder");
    let one = folder.path().join("rows").display().to_string();
    let twice = format!("bench all --subjects free-list --out {one} --csv {one}");
    refused(&twice, &["--out and --csv name the same file"]);
}

#[test]
fn names_are_taken_in_any_case_by_presets_and_subjects_alike() {
    for (option, row) in [("--subjects zonal", "Zonal"), ("--preset skip-merge", "SkipMerge")] {
        let line = format!("bench hot-pair {option} --path shared --threads 1 --samples 1 --json");
        let run = zonal(&line).assert().success();
        let rows = objects(&run.get_output().stdout);
        assert_eq!(rows.iter().map(|it| &it["subject"]).collect::<Vec<_>>(), [row], "{line}");
    }
    zonal("info --preset split-zones --memory 64M").assert().success();
}

#[test]
fn json_has_the_fields_programs_rely_on() {
    let line = "bench hot-pair --subjects free-list --threads 1 --samples 3 --seed 9 --json";
    let run = zonal(line).assert().success();
    let rows = objects(&run.get_output().stdout);
    let [row] = &rows[..] else { panic!("one row: {rows:?}") };
    assert_eq!(row["workload"], "hot-pair");
    assert_eq!(row["subject"], "free-list");
    assert_eq!(row["path"], "shared");
    assert_eq!(row["threads"], 1);
    assert_eq!(row["seed"], 9);
    assert_eq!(row["memory"], 4u64 << 30);
    assert_eq!(row["distance"], Value::Null);
    let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name}: {row}"));
    assert!(0.0 < number("min") && number("min") <= number("ns_per_frame"));
    assert!(number("ns_per_frame") <= number("max"));
    // Up to twice as many where the machine is busy.
    assert!((3.0..=6.0).contains(&(number("samples") + number("dropped"))), "{row}");
}

#[test]
fn every_workload_runs_on_what_is_built_in() {
    // Some of each kind; `workloads` has them run by all.
    let peers = if cfg!(feature = "peers") { ",bitmap-allocator,mimalloc" } else { "" };
    let line = format!(
        "bench all --samples 1 --memory 320M --json --no-progress --delay-ms 1 \
         --highalloc-memory 64M --subjects Zonal,Linux316,SplitZones,free-list,null{peers}"
    );
    let run = zonal(&line).assert().success();
    let rows = objects(&run.get_output().stdout);
    for workload in zonal_bench::workload::Workload::ALL {
        let has_row = rows.iter().any(|row| row["workload"] == workload.name());
        let needs_peers = workload.max_order() > 0 && !cfg!(feature = "peers");
        let plain = zonal_bench::options::Options::default();
        let needs_pair = !workload.runs_on(cpus(), plain) && !workload.runs_on(1, plain);
        assert!(has_row || needs_peers || needs_pair, "no row for {}", workload.name());
    }
    let failed = String::from_utf8_lossy(&run.get_output().stderr).contains("failed");
    assert!(!failed, "{}", String::from_utf8_lossy(&run.get_output().stderr));
}

#[test]
fn several_threads_have_a_distance_and_a_scaling() {
    if cpus() < 2 {
        return;
    }
    let line = "bench page-fault1 --subjects free-list --threads 1,2 --samples 3 --json";
    let run = zonal(line).assert().success();
    let rows = objects(&run.get_output().stdout);
    let pairs: Vec<_> = rows.iter().filter(|row| row["threads"] == 2).collect();
    assert!(!pairs.is_empty(), "{rows:?}");
    for row in pairs {
        assert!(row["distance"] == "near" || row["distance"] == "far", "{row}");
        // None where either row says nothing, as on a busy machine.
        let sound = |row: &Value| {
            row["disturbed"] == false
                && row["scattered"] == false
                && row["samples"].as_u64() >= Some(3)
        };
        let alone = rows.iter().find(|row| row["threads"] == 1).expect("a row");
        let scaling = row["scaling"].as_f64();
        assert_eq!(scaling.is_some(), sound(row) && sound(alone), "{row}");
        assert!(scaling.is_none_or(|scaling| scaling > 0.0), "{row}");
        assert!(row["round_trip_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
    }
}

/// Here and not beside `choose`: whatever asks for all subjects compiles all of them, and the unit
/// tests would do so a second time.
#[test]
fn all_leaves_references_out_unless_the_kernel_is_wanted() {
    let entries = registry::all();
    let names = |line: &str| -> Vec<&str> {
        let line = ["zonal", "bench"].into_iter().chain(line.split_whitespace());
        let Asked::Bench(args) = Cli::try_parse_from(line).expect("parses").command else {
            panic!("not bench");
        };
        let chosen = choose(&args, &entries).expect("something");
        chosen.iter().map(|entry| entry.profile.name).collect()
    };
    let plain = names("page-fault1 --subjects all,free-list");
    assert!(plain.contains(&"free-list") && !plain.contains(&"null"));
    assert!(!plain.contains(&"kernel-mmap"));
    assert_eq!(plain.contains(&"mimalloc"), cfg!(feature = "peers"));
    let touched = names("page-fault1 --touch");
    assert!(touched.contains(&"kernel-mmap") && !touched.contains(&"null"));
    assert_eq!(names("hot-pair --subjects null,free-list"), ["free-list", "null"]);
}

#[cfg(feature = "peers")]
#[test]
fn fragment_counts_blocks() {
    let line = "bench fragment --subjects buddy-slab-allocator --threads 1 --samples 1 \
                --memory 256M --json";
    let run = zonal(line).assert().success();
    let rows = objects(&run.get_output().stdout);
    let count = |name: &str| rows[0][name].as_f64().unwrap_or_else(|| panic!("{rows:?}"));
    assert!(count("blocks_recovered") > 0.0, "a tenth was never allocated");
    assert!(count("blocks_recovered") <= count("blocks_possible"));
}

#[test]
fn touching_runs_beside_the_kernel() {
    let line = "bench page-fault1 --touch --threads 1 --samples 1 --memory 512M --json \
                --subjects free-list,kernel-mmap";
    let run = zonal(line).assert().success();
    let rows = objects(&run.get_output().stdout);
    let ns = |subject: &str| {
        let row = rows.iter().find(|row| row["subject"] == subject);
        row.and_then(|row| row["ns_per_frame"].as_f64()).unwrap_or_else(|| panic!("{rows:?}"))
    };
    assert!(ns("kernel-mmap") > ns("free-list"), "page faults cost more than a list: {rows:?}");
    assert!(rows.iter().all(|row| row["touch"] == true));
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("written");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn files_hold_the_rows_and_nothing_older() {
    let folder = tempfile::tempdir().expect("a folder");
    let (json, csv) = (folder.path().join("rows.json"), folder.path().join("rows.csv"));
    let old = "old content, longer than what replaces it\n".repeat(200);
    for file in [&json, &csv] {
        std::fs::write(file, &old).expect("writable");
    }
    let line = format!(
        "bench hot-pair --subjects free-list,null --threads 1 --samples 1 --out {} --csv {}",
        json.display(),
        csv.display()
    );
    let table = zonal(&line).assert().success();
    table.stdout(contains("free-list").and(contains("ns: wall time")));
    assert_eq!(lines(&json).len(), 2);
    let csv = lines(&csv);
    assert_eq!(csv.len(), 3, "a header and two rows: {csv:?}");
    assert!(csv[0].starts_with("workload,subject,path,threads,distance,ns_per_frame,min,max"));
    assert!(csv[1].starts_with("hot-pair,free-list,shared,1,"), "{csv:?}");
}

#[test]
fn a_bench_without_a_row_leaves_no_files_and_changes_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let (json, csv) = (folder.path().join("rows.json"), folder.path().join("rows.csv"));
    let line = format!(
        "bench order9 --threads 1 --subjects free-list --out {} --csv {}",
        json.display(),
        csv.display()
    );
    zonal(&line).assert().code(1);
    assert!(!json.exists() && !csv.exists());
    std::fs::write(&json, "old\n").expect("writable");
    zonal(&line).assert().code(1);
    assert_eq!(lines(&json), ["old"]);
    // Every row as it comes, with one header.
    let line = line.replace("order9", "all").replace("--threads 1", "--threads 1 --samples 1");
    let run = zonal(&format!("{line} --json")).assert().success();
    let rows = objects(&run.get_output().stdout).len();
    assert!(rows > 1, "several workloads");
    assert_eq!((lines(&json).len(), lines(&csv).len()), (rows, rows + 1));
    assert!(lines(&csv)[1..].iter().all(|line| !line.starts_with("workload,")));
}

/// The processes that `parent` has started.
#[cfg(feature = "peers")]
fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("Linux").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name, which may have anything in it: the state and the parent.
        let after = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        after == Some(&*parent.to_string())
    };
    pids.filter(is_child).collect()
}

#[cfg(feature = "peers")]
fn signal(name: &str, pid: u32) {
    let mut kill = std::process::Command::new("kill");
    assert!(kill.args([name, &pid.to_string()]).status().expect("it starts").success());
}

#[cfg(feature = "peers")]
#[test]
fn a_peer_that_dies_has_a_row_that_says_how_and_the_others_go_on() {
    use std::process::Stdio;
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("zonal-bench"));
    let line = "bench hot-pair --subjects talc,free-list --threads 1 --duration 300 --json \
                --no-progress --csv rows.csv";
    command.args(line.split_whitespace()).current_dir(folder.path());
    let bench = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let peer = (0..500).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        children(bench.id()).first().copied()
    });
    signal("-KILL", peer.expect("talc has a process"));
    let output = zonal_cli::checks::press_ctrl_c(bench, std::time::Duration::from_millis(500));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("talc on 1 thread(s) failed in hot-pair: its process died"), "{said}");
    let rows = objects(&output.stdout);
    let row = |name: &str| rows.iter().find(|row| row["subject"] == name).expect("a row");
    assert_eq!(row("talc")["died"], "signal: 9 (SIGKILL)");
    assert_eq!(row("talc")["ns_per_frame"], Value::Null);
    assert!(row("free-list")["ns_per_frame"].is_number() && row("free-list")["died"].is_null());
    let csv = lines(&folder.path().join("rows.csv"));
    let dead = csv.iter().find(|line| line.contains("talc")).expect("a row");
    assert!(csv[0].ends_with(",died") && dead.ends_with(",signal: 9 (SIGKILL)"), "{csv:?}");
}

#[cfg(feature = "peers")]
#[test]
fn under_a_limit_on_memory_one_peer_ends_and_the_others_go_on() {
    // snmalloc reserves far more, and aborts if it cannot.
    let script = "ulimit -c 0; ulimit -v 2000000; exec \"$0\" \"$@\"";
    let line = "bench hot-pair --subjects snmalloc-rs,bitmap-allocator --threads 1 --samples 1 \
                --json --no-progress";
    let program = assert_cmd::cargo::cargo_bin("zonal-bench");
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(program).args(line.split_whitespace());
    let run = command.assert().code(1).stderr(contains("no result for snmalloc-rs"));
    let rows = objects(&run.get_output().stdout);
    let row = |name: &str| rows.iter().find(|row| row["subject"] == name).expect("a row");
    assert!(row("bitmap-allocator")["ns_per_frame"].is_number());
    let how = row("snmalloc-rs")["died"].as_str().expect("it says how");
    assert!(how.starts_with("signal: 6 (SIGABRT)"), "{how}");
}

/// The thin front tells a name that it has not compiled in from one that does not exist by a list.
#[test]
fn the_known_names_are_those_of_the_registry() {
    let entries = registry::all();
    let mut names: Vec<_> = entries.iter().map(|it| (it.profile.name, it.profile.group)).collect();
    names.dedup();
    if cfg!(feature = "peers") {
        assert_eq!(names, zonal_bench::subjects::KNOWN);
    }
}

#[test]
fn json_of_info_says_of_each_zone_what_the_reports_say() {
    let run = zonal("info --preset zonal --memory 64M --json").assert().success();
    let records = objects(&run.get_output().stdout);
    let (vmstat, zones) = records.split_last().expect("several");
    assert!(!zones.is_empty());
    for zone in zones {
        assert_eq!(zone["record"], "zone");
        let orders = zone["free_blocks_by_order"].as_array().expect("an array");
        assert_eq!(orders.len(), usize::from(zonal::Order::MAX.get()) + 1);
        let free = orders.iter().enumerate().filter_map(|(at, n)| Some(n.as_u64()? << at));
        assert!(zone["free"].as_u64() >= Some(free.sum()), "{zone}");
        assert!(zone["managed"].as_u64() > zone["free"].as_u64(), "something is held");
        assert!(zone["host"].is_string() && zone["date"].is_string(), "{zone}");
    }
    assert!(vmstat["counters"].as_object().is_some_and(|it| it.len() > 10), "{vmstat}");
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn a_thread_that_is_not_given_is_an_error_of_info() {
    let mut info = zonal("info --memory 64M");
    // No address space has room for such stacks.
    let run = info.env("RUST_MIN_STACK", (1_u64 << 60).to_string()).assert().code(1).stdout("");
    run.stderr(contains("cannot start a thread"));
}

#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    for line in ["--help", "--version", "bench --help"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux");
        let program = assert_cmd::cargo::cargo_bin("zonal-bench");
        let mut command = std::process::Command::new(program);
        let run = command.args(line.split(' ')).stdout(full).output().expect("it starts");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("cannot print the results"), "{line}: {said}");
    }
}

#[test]
fn what_is_printed_fits_and_has_colours_on_terminals_only() {
    let program = assert_cmd::cargo::cargo_bin("zonal-bench");
    let lines = [
        "--help",
        "bench --help",
        "bench aging --help",
        "bench tails --help",
        "bench hot-pair --samples 3 --subjects Zonal,Linux416,free-list",
        "bench aging --memory 64M --rounds 2 --subjects Zonal,Linux416",
    ];
    // Not `info`, whose lines are those of Linux's files in `/proc`.
    zonal_cli::checks::fits(&program, &lines);
    zonal_cli::checks::colours(&program, "bench --help");
}

/// A run that would take minutes, interrupted soon: what it prints.
fn interrupted(line: &str) -> String {
    use std::process::{Command, Stdio};
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("zonal-bench"));
    command.args(line.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let output = zonal_cli::checks::press_ctrl_c(child, std::time::Duration::from_millis(500));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{line}: {said}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn ctrl_c_keeps_what_aging_and_tails_have() {
    let many: Vec<String> = (1..=2000).map(|seed| seed.to_string()).collect();
    let many = many.join(",");
    let short = "--memory 64M --subjects Linux416 --json --no-progress";
    let aging = interrupted(&format!("bench aging {short} --rounds 10 --seed {many}"));
    let lines = objects(aging.as_bytes());
    assert!(!lines.is_empty() && lines.len() < 2000, "{} runs", lines.len());
    let fills: Vec<String> = (0..2000).map(|at| (1 + at % 98).to_string()).collect();
    let fills = fills.join(",");
    let tails =
        interrupted(&format!("bench tails {short} --threads 1 --calls 9000 --fill {fills}"));
    let lines = objects(tails.as_bytes());
    // Several rows a fill, and of two in a row each has another.
    let fill = |row: &Value| row["fill"].clone();
    let rows = lines.iter().take_while(|row| fill(row) == fill(&lines[0])).count();
    assert!(rows > 0 && lines.len() < rows * 2000, "{} of {rows} × 2000 rows", lines.len());
}

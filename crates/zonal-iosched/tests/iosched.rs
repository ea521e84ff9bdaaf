//! `zonal iosched` as a user meets it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use zonal_cfq::units::Span;
use zonal_iosched::scheduler::{Kind, Subject};
use zonal_iosched::simulated::simulate;
use zonal_iosched::workload::Workload;

fn iosched(line: &str) -> Command {
    let mut command = Command::cargo_bin("zonal-iosched").expect("the binary of this crate");
    command.arg("iosched").args(line.split_whitespace());
    command
}

fn json(line: &str) -> Vec<Value> {
    let output = iosched(line).assert().success().get_output().stdout.clone();
    let text = String::from_utf8(output).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Runs of `line` for 200 ms or, where that shows not yet what it is to show, for twice as long, and so on: on a busy
/// machine a thread may come late.
fn runs_that_show(line: &str, is_shown: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut duration = 200;
    loop {
        let runs = json(&format!("{line} --duration {duration}ms --json"));
        if duration > 20_000 || runs.iter().all(&is_shown) {
            return runs;
        }
        duration *= 2;
    }
}

/// Whether something is counted by that name.
fn counts(run: &Value, name: &str) -> bool {
    run[name].as_f64() > Some(0.0)
}

const KINDS: [Kind; 3] = [Kind::Cfq, Kind::Deadline, Kind::Noop];

#[test]
fn simulated_readers_read_all_once_on_every_disk_and_scheduler() {
    for (name, disk) in zonal_disk::builtins() {
        for kind in KINDS {
            let workload = Workload::readers(5, 40 << 20, disk.capacity()).expect("it fits");
            let outcome = simulate(&Subject::new(kind), &disk, workload).expect(name);
            let bytes: Vec<u64> = outcome.shares.iter().map(|share| share.bytes).collect();
            assert_eq!(bytes, [8 << 20; 5], "{name} {kind:?}");
            let counters = outcome.counters;
            assert_eq!((counters.submitted, counters.reads.completed), (5 * 64, 5 * 64));
            assert_eq!(counters.reads.sectors * 512, 40 << 20);
        }
    }
}

#[test]
fn who_has_read_all_is_not_waited_for() {
    let disk = zonal_disk::builtin("desktop_2014").expect("it is built in");
    let workload = Workload::readers(4, 256 << 20, disk.capacity()).expect("it fits");
    let subject = Subject { slice_idle_ms: 1000, ..Subject::new(Kind::Cfq) };
    let idled = simulate(&subject, &disk, workload).expect("it runs").idled;
    assert!(idled < Span::from_millis(1000), "{idled:?}");
}

/// The same requests, whatever the scheduler; every workload comes to something.
#[test]
fn no_process_starves() {
    let limit = Span::from_millis(10_000);
    for (name, disk) in zonal_disk::builtins() {
        for kind in KINDS {
            let (bytes, capacity) = (1 << 30, disk.capacity());
            let all = [
                Workload::random(3, bytes, capacity, limit, 1),
                Workload::mixed(3, bytes, capacity, limit),
                Workload::fsync(2, bytes, capacity, limit, 1),
            ];
            for workload in all {
                let workload = workload.expect("it fits");
                let outcome = simulate(&Subject::new(kind), &disk, workload).expect(name);
                for mut share in outcome.shares {
                    let (count, longest) =
                        (share.latencies.count(), share.latencies.percentile(1.0));
                    assert!(count > 10, "{name} {kind:?}: {} {count}", share.name);
                    let most =
                        Span::from_millis(if share.name == "writer" { 9_999 } else { 2_000 });
                    assert!(longest < most, "{name} {kind:?}: {} {longest:?}", share.name);
                }
            }
        }
    }
}

/// What the reviewers say: processes that wait for each other lose by slices and waiting, the more
/// the longer slices are.
#[test]
fn fsyncs_beside_readers_are_slower_with_cfq() {
    let disk = zonal_disk::builtin("desktop_2014").expect("it is built in");
    let median = |subject: Subject| {
        let limit = Span::from_millis(20_000);
        let workload = Workload::fsync(4, 4 << 30, disk.capacity(), limit, 1).expect("it fits");
        let mut outcome = simulate(&subject, &disk, workload).expect("it runs");
        outcome.shares.last_mut().expect("the fsync").latencies.percentile(0.5)
    };
    let cfq = |target_ms| median(Subject { target_ms, ..Subject::new(Kind::Cfq) });
    let (at_300, at_600, deadline) = (cfq(300), cfq(600), median(Subject::new(Kind::Deadline)));
    assert!(deadline < at_300 && at_300 < at_600, "{deadline:?} {at_300:?} {at_600:?}");
}

/// One that asks again at once keeps the disk at work: the disk is waited for, and not it.
#[test]
fn a_disk_at_work_is_not_kept_waiting() {
    let line = "--disk desktop_2014 --workload random --processes 1 --scheduler cfq";
    let run = &json(&format!("{line} --duration 20s --json"))[0];
    // In ms: 1 % of the time.
    assert!(run["idled"].as_f64().is_some_and(|idled| idled < 200.0), "{run}");
}

#[test]
fn a_simulation_is_the_same_again() {
    let line = "--disk desktop_2014 --workload fsync --processes 2 --duration 2s --json";
    let run = || {
        let mut runs = json(line);
        for run in &mut runs {
            run.as_object_mut().expect("an object").remove("date");
        }
        runs
    };
    assert_eq!(run(), run());
}

#[test]
fn published_changes_stand_beside_simulated_ones() {
    let line = "--disk desktop_2014 --size 256M --scheduler cfq --target-latency 300,600 \
                --processes 1,4";
    let rows = json(&format!("{line} --json"));
    let rows: Vec<_> = rows.iter().filter(|row| row.get("published").is_some()).collect();
    let kinds: Vec<_> = rows.iter().map(|row| row["kind"].as_str()).collect();
    assert_eq!(kinds, [Some("fitted"), Some("predicted"), Some("predicted"), Some("predicted")]);
    assert_eq!(rows[3]["published"], 99.71);
    assert!(rows[3]["simulated_change"].is_f64() && rows[3]["published_change"].is_f64());
    iosched(line).assert().success().stdout(contains("the patch changes nothing"));
    let ssd = "--disk sata_ssd --size 64M --target-latency 300,600 --summary";
    iosched(ssd).assert().success().stdout(contains("published").not());
}

#[test]
fn a_file_is_read_by_every_scheduler_and_stays_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, csv) = (directory.path().join("file"), directory.path().join("out.csv"));
    let content: Vec<u8> = (0..4u32 << 20).map(|at| (at >> 9) as u8).collect();
    fs::write(&file, &content).expect("written");
    let line = format!("{} --processes 3 --csv {}", file.display(), csv.display());
    iosched(&line).assert().success().stdout(contains("deadline").and(contains("reader 2")));
    assert!(fs::read(&file).expect("there") == content);
    let text = fs::read_to_string(&csv).expect("there");
    assert!(text.starts_with("on,kind,workload,scheduler,processes,process,metric,value,unit\n"));
    let rates = text.lines().filter(|line| line.contains(",rate,"));
    let mut by_scheduler: BTreeMap<String, usize> = BTreeMap::new();
    for line in rates {
        let scheduler = ["cfq", "deadline", "noop"].into_iter().find(|name| line.contains(name));
        *by_scheduler.entry(scheduler.expect("one of them").to_owned()).or_default() += 1;
    }
    assert_eq!(by_scheduler.into_values().collect::<Vec<_>>(), [4, 4, 4]);
}

#[test]
fn a_file_is_overwritten_only_if_that_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, vec![7; 8 << 20]).expect("written");
    let line = format!("{} --workload fsync --processes 1", file.display());
    iosched(&line).assert().code(2).stderr(contains("--overwrite"));
    assert!(fs::read(&file).expect("there").iter().all(|byte| *byte == 7));
    let writes = |run: &Value| counts(run, "dispatched_writes");
    let runs = runs_that_show(&format!("{line} --overwrite"), writes);
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| run["kind"] == "measured"));
    assert!(fs::read(&file).expect("there").iter().any(|byte| *byte != 7));
    let made = directory.path().join("made");
    let line = format!("{} --size 8M --workload mixed --duration 300ms --summary", made.display());
    iosched(&line).assert().success();
    assert!(!made.exists());
}

#[test]
fn a_size_need_not_be_whole_pages() {
    let directory = tempfile::tempdir().expect("a directory");
    let line = format!("{}/made --size 1000000 --json", directory.path().display());
    for run in json(&line) {
        assert!(run["dispatched_reads"].as_f64() > Some(0.0), "{run}");
    }
}

#[test]
fn a_link_to_nowhere_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path().join("nowhere"), &link).expect("made");
    let line = format!("{} --size 1M", link.display());
    iosched(&line).assert().code(1).stderr(contains("cannot make"));
    assert!(fs::symlink_metadata(&link).is_ok());
}

/// Every run has the figures of a cache.
fn cached(runs: Vec<Value>) -> Vec<Value> {
    assert_eq!(runs.len(), 3);
    for run in &runs {
        let share = run["hit_share"].as_f64().expect("a number");
        assert!((0.0..=1.0).contains(&share) && run["ahead_share"].is_f64(), "{run}");
        assert!(run["cache_bytes"].is_u64() && counts(run, "submitted"), "{run}");
        assert!(all_had_their_turn(run), "{run}");
    }
    runs
}

fn all_had_their_turn(run: &Value) -> bool {
    run["each"].as_array().expect("a list").iter().all(|it| counts(it, "p999_ms"))
}

#[test]
fn through_a_cache_a_file_is_read_once_by_every_scheduler() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, csv) = (directory.path().join("file"), directory.path().join("out.csv"));
    let content: Vec<u8> = (0..8u32 << 20).map(|at| (at >> 9) as u8).collect();
    fs::write(&file, &content).expect("written");
    let line = format!("{} --processes 2 --cache 4M --csv {}", file.display(), csv.display());
    for run in cached(json(&format!("{line} --json"))) {
        // Nothing is asked for twice, and most pages come ahead: all but the first on a machine at rest.
        assert_eq!(run["hit_share"], 0.0);
        assert!(run["ahead_share"].as_f64() > Some(0.5), "{run}");
        assert_eq!(run["each"].as_array().map(Vec::len), Some(2));
    }
    iosched(&line).assert().success().stdout(contains("hits").and(contains("reader 1")));
    assert!(fs::read(&file).expect("there") == content);
    let text = fs::read_to_string(&csv).expect("there");
    assert_eq!(text.lines().filter(|line| line.contains(",,hit_share,0,part")).count(), 3);
    assert_eq!(text.lines().filter(|line| line.contains(",p999_ms,")).count(), 6);
}

#[test]
fn what_fits_in_a_cache_is_read_from_the_file_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, vec![7; 512 << 10]).expect("written");
    let line = format!("{} --workload random --processes 2 --cache 16M", file.display());
    // Each of 128 pages may be drawn: not all that are drawn first differ.
    let hits = |run: &Value| counts(run, "hit_share") && all_had_their_turn(run);
    for run in cached(runs_that_show(&line, hits)) {
        assert!(run["hit_share"].as_f64() > Some(0.0), "{run}");
        assert!(run["submitted"].as_f64() <= Some(128.0), "each page once: {run}");
    }
}

#[test]
fn through_a_cache_a_file_is_written_if_that_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    for (work, name) in [("mixed", "writer"), ("fsync", "fsync: sync")] {
        fs::write(&file, vec![7; 4 << 20]).expect("written");
        let line = format!("{} --workload {work} --processes 1 --cache 1M", file.display());
        iosched(&line).assert().code(2).stderr(contains("--overwrite"));
        assert!(fs::read(&file).expect("there").iter().all(|byte| *byte == 7));
        let writes = |run: &Value| counts(run, "dispatched_writes") && all_had_their_turn(run);
        for run in cached(runs_that_show(&format!("{line} --overwrite"), writes)) {
            assert!(run["each"].as_array().expect("a list").iter().any(|it| it["process"] == name));
            assert!(run["dispatched_writes"].as_f64() > Some(0.0), "{run}");
        }
        let content = fs::read(&file).expect("there");
        let (readers, writers) = content.split_at(2 << 20);
        assert!(readers.iter().all(|byte| *byte == 7) && writers.iter().any(|byte| *byte != 7));
    }
    let made = directory.path().join("made");
    let line = format!("{} --size 4M --workload mixed --duration 100ms --cache 1M", made.display());
    iosched(&line).assert().success();
    assert!(!made.exists());
}

#[test]
fn a_file_that_is_cut_meanwhile_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().canonicalize().expect("there").join("file");
    fs::write(&file, vec![7; 8 << 20]).expect("written");
    let line = format!("{} --workload random --duration 30s --cache 64K", file.display());
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("zonal-iosched"));
    command.arg("iosched").args(line.split_whitespace()).stderr(Stdio::piped());
    let mut program = command.stdout(Stdio::null()).spawn().expect("it can be run");
    // Opened by the program, and by the store: it has seen how long it is.
    let is_open = |id: u32| {
        let all = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten();
        let links = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| *link == file).count() >= 2
    };
    let id = program.id();
    while program.try_wait().is_ok_and(|ended| ended.is_none()) && !is_open(id) {
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(50));
    fs::File::options().write(true).open(&file).and_then(|file| file.set_len(4096)).expect("cut");
    let output = program.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the store has become shorter than the file"), "{said}");
}

#[test]
fn what_is_wrong_is_said() {
    let wrong = |line: &str, said: &str| {
        iosched(line).assert().code(2).stderr(contains(said));
    };
    wrong("", "<FILE>");
    wrong("--disk drum", "desktop_2014");
    wrong("--disk ./drum.toml", "cannot be read");
    wrong("--disk desktop_2014 --processes 0", "at least 1");
    wrong("--disk desktop_2014 --size 2T", "--size");
    wrong("--disk desktop_2014 --scheduler elevator", "elevator");
    wrong("--disk desktop_2014 file", "cannot be used with");
    wrong("--disk desktop_2014 --cache 1M", "cannot be used with");
    for option in ["--depth 1", "--buffered", "--overwrite"] {
        wrong(&format!("--disk sata_ssd {option}"), "cannot be used with");
    }
    wrong("file --buffered --cache 1M", "cannot be used with");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    wrong(&format!("{} --size 1M --cache 12K", file.display()), "at least 16 are needed");
    assert!(!file.exists());
    iosched("/proc/self/nonexistent/x").assert().code(1).stderr(contains("cannot make"));
    iosched("/dev/null").assert().code(1).stderr(contains("cannot use"));
    iosched("--list").assert().success().stdout(contains("sata_ssd"));
}

#[test]
fn what_it_prints_fits_and_has_colours_on_terminals_only() {
    let program = assert_cmd::cargo::cargo_bin("zonal-iosched");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    let real = format!("iosched {} --size 4M --duration 50ms", file.display());
    let cached = format!("{real} --cache 1M --workload");
    let cached = ["random", "mixed", "fsync"].map(|work| format!("{cached} {work}"));
    let lines = [
        &cached[0],
        &cached[1],
        &cached[2],
        "iosched --help",
        "iosched --list",
        "iosched --disk desktop_2014 --size 64M --duration 200ms",
        &real,
    ];
    zonal_cli::checks::fits(&program, &lines);
    zonal_cli::checks::colours(&program, "iosched --list");
}

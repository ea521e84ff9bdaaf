//! Traces: the text of Linux's tracers is read, what is malformed is refused with its line, and
//! what `zonal record` writes is what `zonal replay` does.

use std::path::{Path, PathBuf};
use std::process::{self, Output, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use serde_json::Value;
use zonal::{MigrateType, Order, Request, ZoneType};
use zonal_replay::replay::parse::{Item, Reason, line};
use zonal_replay::replay::trace::{Counts, Trace, TraceError};
use zonal_sim::replay::{Action, Steps};

/// ftrace with decimal and hexadecimal pfns, `trace-cmd report`, `perf script`, an old kernel's
/// names, and what surrounds them.
const LINUX: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 12/12   #P:4
#
#                                _-----=> irqs-off/BH-disabled
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
             cc1-812     [000] .....   411.205871: mm_page_alloc: page=0000000029f1dd3e pfn=0x1a2b00 order=0 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP
             cc1-812     [000] d..2.   411.205870: mm_page_alloc_zone_locked: page=0000000029f1dd3e pfn=0x1a2b00 order=0 migratetype=1 percpu_refill=1
     kworker/1:2-77      [001] d.s1.   411.205902: mm_page_alloc: page=00000000b2c3d4e5 pfn=107776 order=3 migratetype=0 gfp_flags=GFP_ATOMIC|__GFP_NOWARN|__GFP_COMP
 CPU 0/KVM-9000  ( 8999) [002] .....   411.206001: mm_page_alloc: page=00000000aabbccdd pfn=0xfff00 order=9 migratetype=1 gfp_flags=GFP_TRANSHUGE_LIGHT|__GFP_SKIP_ZERO
CPU:3 [LOST 17 EVENTS]
          <idle>-0     [003] ..s1.   411.206100: mm_page_free: page=00000000b2c3d4e5 pfn=0x1a500 order=3
cpus=4
              sh-12    [003] 411.207000: mm_page_alloc: page=0xffffea0000123400 pfn=0x48d0 order=1 migratetype=2 gfp_flags=GFP_NOFS|__GFP_RECLAIMABLE|GFP_DMA32
  perl  4021 [001]   411.208000: kmem:mm_page_free: page=0x1a2b00 pfn=1714944 order=0
  perl  4021 [001]   411.208000: kmem:mm_page_free_batched: page=0x1a2b00 pfn=1714944 order=0 cold=0
  perl  4021 [001]   411.208100: kmem:mm_page_alloc: page=          (null) pfn=0 order=4 migratetype=0 gfp_flags=GFP_KERNEL
  perl  4021 [001]   411.208200: kmem:mm_page_free_direct: page=0xffffea0000999000 pfn=9999 order=2
  perl  4021 [001]   411.208300: sched:sched_switch: prev_comm=perl
  perl  4021 [002]   411.208400: kmem:mm_page_alloc: page=0xffffea0000123400 pfn=18640 order=0 migratetype=0 gfp_flags=GFP_KERNEL|GFP_ZERO|GFP_WAIT
CPU 1 is empty
";

#[test]
fn traces_of_linux_are_read() {
    let trace = Trace::read(LINUX.as_bytes()).expect("it is Linux's own format");
    let counts = Counts {
        allocs: 5,
        frees: 2,
        foreign_frees: 1,
        implied_frees: 1,
        failed: 1,
        accompanying: 2,
        unknown_events: 1,
        unknown_flags: 1,
        raised_limits: 1,
        lost: 17,
        ..Counts::default()
    };
    assert_eq!(trace.counts, counts);
    let steps = trace.script.folded(4);
    let requests: Vec<Request> = steps
        .iter()
        .flat_map(Steps::iter)
        .filter_map(|step| match step.action {
            Action::Alloc(request) => Some(request),
            Action::Free => None,
        })
        .collect();
    let movable = |order| {
        let request = Request::new(order).migrate(MigrateType::Movable);
        request.zone_limit(ZoneType::Movable)
    };
    let order = |n| Order::new(n).expect("an order");
    let wanted = [
        movable(Order::ZERO),
        Request::new(order(3)).high().atomic(),
        movable(Order::HUGE).no_wait(),
        Request::frame(),
        Request::new(order(1)).migrate(MigrateType::Reclaimable),
    ];
    assert_eq!(requests, wanted);
    assert_eq!(trace.script.peak_frames(), 1 + 8 + 512);
}

#[test]
fn allocations_that_failed_are_not_done_again() {
    let line_of = |page: &str, pfn: &str| {
        let start = "sh-1 [000] ..... 12.5: mm_page_alloc:";
        let text =
            format!("{start} {page} pfn={pfn} order=9 migratetype=1 gfp_flags=GFP_TRANSHUGE");
        line(&text).unwrap_or_else(|reason| panic!("{text}: {reason}"))
    };
    for page in ["page=(nil)", "page=          (null)"] {
        for pfn in ["0x0", "0", "18446744073709551615"] {
            assert_eq!(line_of(page, pfn), Item::Failed, "{page} pfn={pfn}");
        }
    }
    // Zero, hashed, or not printed at all.
    for page in ["page=0x0", "page=00000000b2c3d4e5", "page=(____ptrval____)", ""] {
        assert_eq!(line_of(page, "0x0"), Item::Failed, "{page}");
    }
    // Frame 0 of an arena, as it is recorded.
    let frame_0 = line_of("page=ffffea0000000000", "0x0");
    assert!(matches!(frame_0, Item::Alloc { pfn: 0, .. }), "{frame_0:?}");
    let trace = "sh-1 [000] ..... 1.5: mm_page_alloc: page=(nil) pfn=0x0 order=9 gfp_flags=GFP_KERNEL\n\
                 sh-1 [000] ..... 1.6: mm_page_alloc: page=0xff pfn=0x1 order=0 gfp_flags=GFP_KERNEL\n";
    let trace = Trace::read(trace.as_bytes()).expect("two events");
    assert_eq!((trace.counts.failed, trace.counts.allocs), (1, 1));
    assert_eq!(trace.script.peak_frames(), 1);
}

#[test]
fn lines_that_cannot_be_read_are_refused_with_the_reason() {
    let cases = [
        ("sh-1 12.5: mm_page_free: pfn=0x1 order=0", Reason::NoCpu),
        ("sh-1 [x] ..... 12.5: mm_page_free: pfn=0x1 order=0", Reason::NoCpu),
        ("sh-1 [99999999999] ..... 12.5: mm_page_free: pfn=0x1 order=0", Reason::NoCpu),
        ("sh-1 [000] .....", Reason::NoTime),
        ("sh-1 [000] mm_page_free: pfn=0x1 order=0", Reason::NoTime),
        ("sh-1 [000] ..... 12.5:", Reason::NoEvent),
        ("sh-1 [000] ..... 12.5: mm_page_free pfn=0x1", Reason::NoEvent),
        ("sh-1 [000] ..... 12.5: mm_page_free: order=0", Reason::Missing("pfn")),
        ("sh-1 [000] ..... 12.5: mm_page_free: pfn=0x1", Reason::Missing("order")),
        ("sh-1 [000] ..... 12.5: mm_page_free: pfn= order=0", Reason::NotANumber("pfn")),
        ("sh-1 [000] ..... 12.5: mm_page_free: pfn=0xzz order=0", Reason::NotANumber("pfn")),
        ("sh-1 [000] ..... 12.5: mm_page_free: pfn=-1 order=0", Reason::NotANumber("pfn")),
        (
            "sh-1 [000] ..... 12.5: mm_page_free: pfn=0x1ffffffffffffffff order=0",
            Reason::NotANumber("pfn"),
        ),
        ("sh-1 [000] ..... 12.5: mm_page_free: pfn=0x1 order=11", Reason::Order(11)),
        ("sh-1 [000] ..... 12.5: mm_page_free: pfn=0x1 order=256", Reason::Order(256)),
        ("sh-1 [000] ..... 12.5: mm_page_alloc: pfn=0x1 order=0", Reason::Missing("gfp_flags")),
        (
            "sh-1 [000] ..... 12.5: mm_page_alloc: pfn=0x1 order=0 migratetype=5",
            Reason::MigrateType(5),
        ),
    ];
    for (text, reason) in cases {
        assert_eq!(line(text), Err(reason), "{text}");
    }
    let good = "sh-1 [000] ..... 12.5: mm_page_free: pfn=0x1 order=0";
    assert!(matches!(line(good), Ok(Item::Free { cpu: 0, pfn: 1, order: Order::ZERO })));
    let error = Trace::read(format!("# trace\n{good}\nsh-1 [000] .....\n").as_bytes());
    let Err(error @ TraceError::Line { line: 3, reason: Reason::NoTime }) = error else {
        panic!("{error:?}");
    };
    assert!(error.to_string().starts_with("line 3: there is no time"), "{error}");
    assert!(matches!(Trace::read(good.as_bytes()), Err(TraceError::Empty)));
}

/// An allocation and its free.
const PAIR: &str = "\
sh-1 [000] ..... 1.0: mm_page_alloc: page=0 pfn=0x1 order=0 migratetype=0 gfp_flags=GFP_KERNEL
sh-1 [000] ..... 1.1: mm_page_free: page=0 pfn=0x1 order=0
";

#[test]
fn lost_events_are_counted_up_to_the_largest_number() {
    let lost = |counts: &[&str]| {
        let lines = counts.iter().map(|said| format!("CPU:0 [{said}]\n"));
        let text = PAIR.to_owned() + &lines.collect::<String>();
        Trace::read(text.as_bytes()).expect("a trace").counts.lost
    };
    let at_least = "at least one where the tracer does not say";
    assert_eq!(lost(&["LOST 7 EVENTS", "LOST many EVENTS", "LOST 0 EVENTS"]), 9, "{at_least}");
    assert_eq!(lost(&["204600 EVENTS DROPPED", "EVENTS DROPPED"]), 204_601, "{at_least}");
    assert_eq!(lost(&["LOST 18446744073709551615 EVENTS", "LOST 7 EVENTS"]), u64::MAX);
    assert_eq!(lost(&["LOST 99999999999999999999 EVENTS", "7 EVENTS DROPPED"]), u64::MAX);
    assert_eq!(lost(&["7 EVENTS"]), 0, "of something else");
}

#[test]
fn lines_of_other_tracers_are_passed_over() {
    let other = [
        "sh-7 [000] ..... 1.01: sys_getpid()",
        "sh-7 [000] ..... 1.02: sys_read(fd: 3, buf: 7ffd, count: 20)",
        "sh-7 [000] ..... 1.03: sys_read -> 0x20",
        "sh-7 [000] ..... 1.04: do_x <-do_y",
        "sh-7 [000] ..... 1.05: do_x(a=1, b=2) <-do_y",
        "sh-7 [000] ..... 1.06: <stack trace>",
        "sh-7 [000] ..... 1.07: <user stack trace>",
        "sh-7 [000] 1.08: PERF_RECORD_LOST_SAMPLES lost 2",
    ];
    let between = format!(
        "{}\n => do_x\n => do_y+0x1f/0x30\n =>  /lib/libc.so.6[+0x1234]\n\
         sh-7 [000] 1.09: PERF_RECORD_LOST lost 5\n",
        other.join("\n"),
    );
    let (alloc, free) = PAIR.split_once('\n').expect("two lines");
    let trace = Trace::read(format!("{alloc}\n{between}{free}").as_bytes()).expect("a trace");
    let unknown_events = other.len() as u64;
    let counts = Counts { allocs: 1, frees: 1, unknown_events, lost: 5, ..Counts::default() };
    assert_eq!(trace.counts, counts);
    // A thread may be called anything.
    let named = line("=> x-1 [002] ..... 12.5: mm_page_free: pfn=0x1 order=0");
    assert!(matches!(named, Ok(Item::Free { cpu: 2, .. })), "{named:?}");
}

#[test]
fn what_has_no_end_is_refused_and_not_kept() {
    use std::io::{BufReader, Read, repeat};
    let zeros = Trace::read(BufReader::new(repeat(0)));
    assert!(matches!(zeros, Err(TraceError::LongLine { line: 1 })), "{zeros:?}");
    let pairs = PAIR.repeat(10);
    let most = Trace::read_up_to(9, pairs.as_bytes());
    assert!(matches!(most, Err(TraceError::TooLong { line: 10, most: 9 })), "{most:?}");
    let name = "x".repeat(60_000);
    let long = format!("{name}-1 [000] 1.0: sched_switch: x=1\n");
    assert!(Trace::read(long.as_bytes().chain(PAIR.as_bytes())).is_ok());
}

/// Runs `zonal` with these arguments.
fn zonal(arguments: &[&str]) -> Output {
    Command::cargo_bin("zonal-replay").expect("built").args(arguments).output().expect("it runs")
}

fn rows(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

#[test]
fn what_is_recorded_is_what_is_replayed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("trace.txt");
    let memory = ["--memory", "64M"];
    // Each thread: two repetitions of 1024 pairs.
    let arguments = ["record", "hot-pair", "--threads", "1", "--preset", "linux416", "-o"];
    let said = zonal(&[&arguments[..], &[text(&path)], &memory].concat());
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(!String::from_utf8_lossy(&said.stdout).contains("lost"));
    let trace = std::fs::read_to_string(&path).expect("the trace");
    let count = |event: &str| trace.matches(&format!(": {event}: ")).count();
    assert_eq!((count("mm_page_alloc"), count("mm_page_free")), (2048, 2048));
    assert!(count("mm_page_alloc_zone_locked") > 0, "the cache was filled");

    let presets = "linux416,zonal,split-zones,less-dirty";
    let replay = ["replay", text(&path), "--json", "--preset", presets];
    let real = rows(&zonal(&[&replay[..], &memory].concat()));
    let machine = ["--machine", "desktop_8cpu_4g"];
    let simulated = rows(&zonal(&[&replay[..], &memory, &machine].concat()));
    assert_eq!((real.len(), simulated.len()), (4, 4));
    for row in real.iter().chain(&simulated) {
        assert_eq!(row["operations"], 4096, "{row}");
        assert_eq!(row["failures"], 0, "{row}");
        assert_eq!(row["peak_frames"], 1, "{row}");
        let found = &row["found"];
        assert_eq!((&found["allocs"], &found["frees"]), (&2048.into(), &2048.into()), "{row}");
        assert_eq!((&found["foreign_frees"], &found["implied_frees"]), (&0.into(), &0.into()));
        let zones = row["zones"].as_array().expect("a list");
        let blocks: u64 = zones.iter().filter_map(Value::as_u64).sum();
        assert_eq!(blocks, 2048, "each block was in a zone: {row}");
    }
    let again = rows(&zonal(&[&replay[..], &memory, &machine].concat()));
    // The date is when it was run.
    let undated = |mut rows: Vec<Value>| {
        rows.iter_mut().for_each(|row| row["date"] = Value::Null);
        rows
    };
    assert_eq!(undated(simulated), undated(again), "simulated, the same to the cycle");
}

#[test]
fn an_interrupted_recording_keeps_what_was_recorded() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("trace.txt");
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin("zonal-replay"));
    // For hours.
    command.args("record hot-pair --threads 1 --memory 64M --events 1000".split(' '));
    command.args(["--iterations", "100000000", "--output", text(&path)]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let output = zonal_cli::checks::press_ctrl_c(child, Duration::from_millis(500));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted; the trace has what was recorded until then"), "{said}");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains(" events written to ") && told.contains("were lost"), "{told}");
    let trace = std::fs::read_to_string(&path).expect("the trace");
    assert!(trace.contains("\n# interrupted: the workload went on\n"), "{}", &trace[..200]);
    let replayed = rows(&zonal(&["replay", text(&path), "--json", "--preset", "zonal"]));
    assert!(replayed[0]["operations"].as_u64() > Some(900), "{replayed:?}");
}

#[test]
fn frames_go_from_cpu_to_cpu_as_they_did() {
    let cpus = zonal_bench::machine::cpus().expect("affinity").len();
    if cpus < 2 {
        eprintln!("SKIPPED: one CPU, none to pass frames to");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("trace.txt");
    let record = ["record", "producer-consumer", "--threads", "2", "--memory", "256M", "-o"];
    let said = zonal(&[&record[..], &[text(&path)]].concat());
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let trace = std::fs::read_to_string(&path).expect("the trace");
    assert!(trace.contains(" [000] ") && trace.contains(" [001] "), "two CPUs");
    for threads in ["1", "2"] {
        let replay = ["replay", text(&path), "--json", "--threads", threads, "--memory", "256M"];
        for row in rows(&zonal(&replay)) {
            assert_eq!(row["operations"], 4 * 32_768, "{row}");
            assert_eq!(row["failures"], 0, "{row}");
            // In the order of time nothing is freed before it is allocated, nor twice.
            assert_eq!(row["found"]["foreign_frees"], 0, "{row}");
            assert_eq!(row["found"]["implied_frees"], 0, "{row}");
        }
    }
}

#[test]
fn losses_and_faults_are_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("trace.txt");
    let small = ["record", "hot-pair", "--threads", "1", "--memory", "64M", "--events", "100"];
    let said = zonal(&[&small[..], &["-o", text(&path)]].concat());
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let told = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(told.contains("128 events written") && told.contains("lost"), "{told}");
    let replayed = zonal(&["replay", text(&path), "--preset", "zonal", "--memory", "64M"]);
    let told = String::from_utf8_lossy(&replayed.stdout).into_owned();
    assert!(told.contains("events were lost by the tracer"), "{told}");

    let linux = file(&dir, "linux.txt", LINUX);
    let large = zonal(&["replay", text(&linux), "--memory", "1M"]);
    let why = String::from_utf8_lossy(&large.stderr).into_owned();
    assert_eq!(large.status.code(), Some(2), "{why}");
    assert!(why.contains("the trace has 2.0 MiB in use at once"), "{why}");
    let bad = file(&dir, "bad.txt", "sh-1 [000] ..... 1.0: mm_page_free: pfn=0x1 order=99\n");
    let refused = zonal(&["replay", text(&bad)]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("bad.txt: line 1: order=99: the largest order is 10"), "{why}");
    let endless = zonal(&["replay", "/dev/zero"]);
    let why = String::from_utf8_lossy(&endless.stderr).into_owned();
    assert_eq!(endless.status.code(), Some(2), "{why}");
    assert!(why.contains("/dev/zero: line 1: longer than 65536 bytes"), "{why}");
    let missing = zonal(&["replay", "no-such-file"]);
    assert_eq!(missing.status.code(), Some(2));
    assert_eq!(zonal(&["replay", text(&linux), "--preset", "unheard-of"]).status.code(), Some(2));
}

/// Lines that are damaged at random are read or refused; nothing else happens.
#[test]
fn damaged_lines_are_read_or_refused() {
    let mut rng = zonal_bench::rng::Rng::new(1);
    let lines: Vec<&str> = LINUX.lines().collect();
    let (mut read, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = lines[rng.below(lines.len())].as_bytes().to_vec();
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len() + 1);
            match rng.below(3) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, rng.below(256) as u8),
                _ => drop(bytes.drain(at..bytes.len().min(at + 5))),
            }
        }
        match line(&String::from_utf8_lossy(&bytes)) {
            Ok(_) => read += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
}

#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    for line in ["--help", "--version", "replay --help"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux");
        let program = assert_cmd::cargo::cargo_bin("zonal-replay");
        let mut command = std::process::Command::new(program);
        let run = command.args(line.split(' ')).stdout(full).output().expect("it starts");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("cannot print the results"), "{line}: {said}");
    }
}

#[test]
fn what_is_printed_fits_and_has_colours_on_terminals_only() {
    let program = assert_cmd::cargo::cargo_bin("zonal-replay");
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("trace");
    let record = format!("record hot-pair --threads 1 --memory 64M -o {}", trace.display());
    let replay = format!("replay {}", trace.display());
    let lines = ["record --help", "replay --help", &record, &replay];
    zonal_cli::checks::fits(&program, &lines);
    zonal_cli::checks::colours(&program, &format!("{replay} --no-progress"));
}

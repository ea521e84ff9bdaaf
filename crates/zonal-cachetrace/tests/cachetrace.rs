//! The command as a user meets it.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{self, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn cachetrace(trace: impl AsRef<[u8]>, options: &str) -> assert_cmd::assert::Assert {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace");
    std::fs::write(&path, trace).expect("written");
    on(&path, options)
}

fn on(path: &Path, options: &str) -> assert_cmd::assert::Assert {
    let mut command = Command::cargo_bin("zonal-cachetrace").expect("the binary of this crate");
    command.arg("cachetrace").arg(path).args(options.split_whitespace()).assert()
}

/// A loop over 100 pages, as a table with a head.
fn csv() -> String {
    let mut text = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n".to_owned();
    for at in 0..1000 {
        let _ = writeln!(text, "{at},usr,0,Read,{},4096,1", at % 100 * 4096);
    }
    text
}

#[test]
fn it_prints_a_table_and_a_chart() {
    cachetrace(csv(), "").success().stdout(
        contains("1000 requests (msr), 1000 pages of 4 KiB, 100 of them different")
            .and(contains("S3-FIFO").and(contains("SIEVE")).and(contains("optimum")))
            .and(contains("two-lists").and(contains("MGLRU")).and(contains("LRU")))
            .and(contains("█ is all")),
    );
    // With room for all: 900 of 1000.
    let all = cachetrace(csv(), "--sizes 400K,1M --policies sieve,lru,mglru,two-lists").success();
    all.stdout(contains("400 KiB").and(contains("90.00")).and(contains("optimum").not()));
}

#[test]
fn a_bar_is_for_terminals() {
    cachetrace(csv(), "").success().stderr("");
    cachetrace(csv(), "--no-progress").success().stderr("");
}

#[test]
fn pages_and_other_sizes() {
    cachetrace("# pages\n1\n2\n1\n", "--sizes 8K").success().stdout(contains("33.33"));
    cachetrace(csv(), "--page 64K").success().stdout(contains("7 of them different"));
}

/// Two objects in turn, of 1000 and 3000 bytes; 90 requests.
fn objects() -> Vec<u8> {
    let mut bytes = Vec::new();
    for at in 0..90_u64 {
        bytes.extend_from_slice(&(at as u32).to_le_bytes());
        bytes.extend_from_slice(&(at % 2).to_le_bytes());
        bytes.extend_from_slice(&[1000_u32, 3000][at as usize % 2].to_le_bytes());
        bytes.extend_from_slice(&(at as i64 + 2).to_le_bytes());
    }
    bytes
}

#[test]
fn records_and_objects_as_large_as_they_are() {
    let read = "--format oracle-general --whole --policies sieve,s3-fifo,two-lists,mglru,lru,opt";
    let both = cachetrace(objects(), &format!("{read} --sizes 4000")).success();
    let said = "90 requests (oracle-general), 2 different objects (3.9 KiB)";
    both.stdout(contains(said).and(contains("97.78")));
    let one = cachetrace(objects(), &format!("{read} --sizes 2999")).success();
    one.stdout(contains("48.89").and(contains("97.78").not()));
    let pages = cachetrace(objects(), "--format oracle-general").success();
    pages.stdout(contains("90 pages of 4 KiB, 2 of them different"));
    // Lines are objects, too: 100 of 4 KiB, or of one page each.
    let lines = cachetrace(csv(), "--whole --sizes 400K").success();
    lines.stdout(contains("100 different objects (400 KiB)").and(contains("90.00")));
    let numbers = cachetrace("# numbers\n7\n8\n7\n", "--whole --sizes 2").success();
    numbers.stdout(contains("2 different objects (2 B)").and(contains("33.33")));
}

/// Three objects of 2⁶³ − 1 bytes are more than a number of bytes can be.
#[test]
fn objects_that_are_larger_than_there_can_be_are_no_error() {
    let object = |at| format!("{at},usr,{at},Read,0,9223372036854775807,1\n");
    let trace: String = (0..3).map(object).collect();
    cachetrace(&trace, "--whole").success().stdout(contains("3 different objects (16777216 TiB)"));
    cachetrace(&trace, "--whole --sizes 16777215T").success().stdout(contains("MGLRU"));
}

/// What `blkparse -i sda` prints: of a write its way through the queue, a flush, a read, and the summary. Another
/// request may be under way when it begins.
const BLKPARSE: &str = "\
  8,0    1        1     0.000000000   697  C   R 4096 + 8 [0]
  8,0    3        1     0.000001000   697  A  WS 223490 + 8 <- (8,1) 221442
  8,0    3        2     0.000001829   697  Q  WS 223490 + 8 [kjournald]
  8,0    3        3     0.000002197   697  G  WS 223490 + 8 [kjournald]
  8,0    3        4     0.000002500   697  P   N [kjournald]
  8,0    3        5     0.000005533   697  I  WS 223490 + 8 [kjournald]
  8,0    3        0     0.000006000     0  m   N cfq697S / insert_request
  8,0    3        6     0.000007000   697  U   N [kjournald] 1
  8,0    3        7     0.000008000   697  D  WS 223490 + 8 [kjournald]
  8,0    3        8     0.000904000     0  C  WS 223490 + 8 [0]
  8,0    0        1     0.000905000    51  Q FWS [kworker/0:1H]
  8,0    0        2     0.001905000    99  Q   R 8192 + 16 [Web Content]
CPU0 (sda):
 Reads Queued:           1,        8KiB\t Writes Queued:           0,        0KiB
 Read Dispatches:        0,        0KiB\t Write Dispatches:        0,        0KiB
 Reads Requeued:         0\t\t Writes Requeued:         0
 IO unplugs:             0        \t Timer unplugs:           0

Total (sda):
 Reads Queued:           1,        8KiB\t Writes Queued:           1,        4KiB

Throughput (R/W): 4,199KiB/s / 2,099KiB/s
Events (sda): 11 entries
Skips: 0 forward (0 -   0.0%)
";

#[test]
fn what_blkparse_prints_is_read() {
    let said = "2 requests (blkparse), 4 pages of 4 KiB";
    for options in ["", "--format blkparse"] {
        cachetrace(BLKPARSE, options).success().stdout(contains(said));
    }
    // Many events before the first request.
    let (first, rest) = BLKPARSE.split_once('\n').expect("lines");
    let late = format!("{first}\n").repeat(30) + rest;
    cachetrace(late, "").success().stdout(contains(said));
    let none = BLKPARSE.lines().filter(|line| !line.contains(" Q ")).collect::<Vec<_>>();
    cachetrace(none.join("\n"), "--format blkparse").code(2).stderr(contains("no request in it"));
    let (whole, _) = BLKPARSE.split_once(" + 16").expect("a request");
    let cut = cachetrace(whole, "").code(2);
    cut.stderr(contains("line 12: 8 fields, and 10 are needed"));
}

#[test]
fn what_is_wrong_is_said() {
    let (mut short, mut other) = (objects(), vec![0; 32]);
    short.pop();
    let short = cachetrace(short, "--format oracle-general").code(2);
    short.stderr(contains("record 90: 23 bytes, and a record has 24"));
    other[15] = 2;
    let other = cachetrace(other, "--format vscsi").code(2);
    other.stderr(contains("record 1: a record of version 2, and 1 is what is read"));
    cachetrace(objects(), "").code(2).stderr(contains("cannot read"));
    cachetrace("1\n", "--whole --page 8K").code(2).stderr(contains("cannot be used with"));
    let refused = |trace: &str, options: &str, said: &str| {
        cachetrace(trace, options).code(2).stderr(contains(said.to_owned()));
    };
    refused("", "", "no request in it touches a page");
    refused("0,usr,0,Read,0,4096,1\n1,usr,0,Read,x,4096,1\n", "", "line 2: `x` is not a number");
    refused(&"nonsense\n".repeat(20), "", "no known format");
    refused("1\n", "--page 3", "no power of two");
    refused("1\n", "--format spd", "possible values");
    on(Path::new("/nowhere/trace"), "").code(2).stderr(contains("cannot read /nowhere/trace"));
}

/// What has no end of line is not read whole, but its first 64 KiB.
#[test]
fn a_line_has_a_limit() {
    let said = "line 2: more than 65536 bytes without an end of line";
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "# zeroes follow\n").expect("written");
    file.as_file().set_len(64 << 20).expect("sparse");
    for options in ["", "--whole", "--format pages"] {
        on(file.path(), options).code(2).stderr(contains(said));
    }
    let line = |bytes: usize| format!("#{}\n7\n8\n7\n", "x".repeat(bytes - 1));
    cachetrace(line(65_536), "--sizes 8K").success().stdout(contains("33.33"));
    cachetrace(line(65_536).replace('\n', "\r\n"), "--sizes 8K").success();
    let long = cachetrace(line(65_537), "").code(2);
    long.stderr(contains("line 1: more than 65536 bytes"));
    let last = format!("7\n#{}", "x".repeat(65_537));
    cachetrace(last, "").code(2).stderr(contains(said));
}

#[test]
fn what_it_prints_fits_and_has_colours_on_terminals_only() {
    let program = assert_cmd::cargo::cargo_bin("zonal-cachetrace");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), csv()).expect("written");
    let run = format!("cachetrace {} --no-progress", file.path().display());
    zonal_cli::checks::fits(&program, &["cachetrace --help", &run]);
    zonal_cli::checks::colours(&program, &run);
}

/// 200 sizes take far longer than they are given here.
#[test]
fn an_interrupted_run_shows_the_sizes_that_were_done() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace");
    let trace: String = (0..200_000_u32).map(|at| format!("{}\n", at * 7919 % 50_021)).collect();
    std::fs::write(&path, format!("# pages\n{trace}")).expect("written");
    let sizes: Vec<String> = (1..=200).map(|size| format!("{}K", size * 512)).collect();
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin("zonal-cachetrace"));
    command.arg("cachetrace").arg(&path).args(["--sizes", &sizes.join(",")]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let output = zonal_cli::checks::press_ctrl_c(child, Duration::from_secs(1));
    let (out, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(out.contains("512 KiB") && out.contains("hits by size of the cache"), "{out}");
    assert!(!out.contains("100 MiB"), "{out}");
}

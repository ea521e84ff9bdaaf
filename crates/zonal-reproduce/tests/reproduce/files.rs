//! What is written to files: CSV, the report, charts.

use super::*;
use resvg::{tiny_skia, usvg};
use std::path::Path;

#[test]
fn csv_has_the_same_rows() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rows.csv");
    let (_, result) = printed(&exact(), &ReproduceArgs { csv: Some(path.clone()), ..args() });
    result.expect("it runs");
    let mut reader = csv::Reader::from_path(&path).expect("it is there");
    let header = reader.headers().expect("a header").clone();
    assert_eq!(
        header.iter().take(5).collect::<Vec<_>>(),
        ["table", "machine", "workload", "kernel", "metric"]
    );
    assert_eq!(reader.records().filter_map(Result::ok).count(), facts::all().len());
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_runs() {
    let fake = exact();
    let nowhere = Some(Path::new("/nonexistent/report.html").to_owned());
    let same = Some(std::env::temp_dir().join("same.out"));
    for args in [
        ReproduceArgs { report: nowhere.clone(), ..args() },
        ReproduceArgs { csv: nowhere.clone(), ..args() },
        ReproduceArgs { charts: Some("/proc".into()), ..args() },
        ReproduceArgs { csv: same.clone(), report: same, ..args() },
    ] {
        let (_, result) = printed(&fake, &args);
        assert_eq!(result.expect_err("it cannot be written").exit_code(), 2);
    }
    assert!(fake.runs.lock().expect("nothing panicked").is_empty());
}

/// Parses HTML as XML, which the report happens to be but for what has no end.
fn parsed(html: &str) -> String {
    let html = html.strip_prefix("<!DOCTYPE html>").expect("a document type");
    let mut xml = String::new();
    for part in html.split_inclusive('>') {
        match part.rfind("<meta ") {
            Some(_) => xml.push_str(&part.replace('>', "/>")),
            None => xml.push_str(part),
        }
    }
    xml
}

#[test]
fn the_report_is_one_well_formed_document() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("out.html");
    let fake = Fake { off: 1.07, without: Some("skylake_4s_768g"), ..exact() };
    let (_, result) = printed(&fake, &ReproduceArgs { report: Some(path.clone()), ..args() });
    result.expect("it runs");
    let html = std::fs::read_to_string(&path).expect("it is there");
    let xml = parsed(&html);
    let document = usvg::roxmltree::Document::parse(&xml).expect("well-formed");
    let names = |name: &'static str| document.descendants().filter(move |it| it.has_tag_name(name));
    assert!(names("svg").count() >= 10);
    assert_eq!(names("script").count() + names("link").count() + names("img").count(), 0);
    assert!(!html.contains("http://") && !html.contains("https://") && !html.contains("@import"));
    assert!(!html.contains("url("), "the style refers to nothing");
    // Links within it lead somewhere.
    let ids: HashSet<_> = document.descendants().filter_map(|it| it.attribute("id")).collect();
    for link in names("a") {
        let target = link.attribute("href").and_then(|href| href.strip_prefix('#'));
        assert!(target.is_some_and(|target| ids.contains(target)), "{link:?}");
    }
    assert!(html.contains("no machine skylake_4s_768g is built in"));
    let rows =
        names("tr").filter(|it| matches!(it.attribute("class"), Some("fitted" | "predicted")));
    assert_eq!(rows.count(), facts::all().len());
}

#[test]
fn charts_are_written_twice() {
    let directory = tempfile::tempdir().expect("a directory");
    let charts = directory.path().join("new/charts");
    let fake = Fake { off: 1.05, ..exact() };
    let (_, result) = printed(&fake, &ReproduceArgs { charts: Some(charts.clone()), ..args() });
    result.expect("it runs");
    let mut names = Vec::new();
    for file in std::fs::read_dir(&charts).expect("it is there") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|it| it == "png") {
            let pixmap = tiny_skia::Pixmap::load_png(&path).expect("a PNG");
            let paper = pixmap.pixels()[0];
            assert!(pixmap.pixels().iter().any(|pixel| *pixel != paper), "{path:?} is empty");
            names.push(path.file_stem().expect("a name").to_string_lossy().into_owned());
        } else {
            let svg = std::fs::read_to_string(&path).expect("text");
            usvg::Tree::from_str(&svg, &usvg::Options::default()).expect("an SVG");
            assert!(path.with_extension("png").exists());
        }
    }
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "batched-irq",
            "broadwell-processes",
            "broadwell-processes-gain",
            "broadwell-threads",
            "broadwell-threads-gain",
            "bulk-frees",
            "disk-latency",
            "errors",
            "fair-zone",
            "fair-zone-velocity",
            "page-fault1-112",
            "parallel-free",
            "split-zones",
            "stress-highalloc",
            "thp-mix",
            "where-the-cycles-go",
        ]
    );
    let lists = std::fs::read_to_string(charts.join("batched-irq.svg")).expect("text");
    assert!(
        lists.contains("Amean") && lists.contains("Max-90%") && !lists.contains("not simulated")
    );
    for there in ["Coeff", "files deleted a second", "files made and read", "SeqCreate"] {
        assert!(lists.contains(there), "{there}");
    }
    assert!(!lists.contains("not run"));
}

#[test]
fn there_is_no_chart_of_published_numbers_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let charts = directory.path().join("charts");
    let fake = Fake { without: Some("skylake_4s_768g"), ..exact() };
    let only = ReproduceArgs { charts: Some(charts.clone()), ..args() };
    printed(&fake, &only).1.expect("it runs");
    assert!(charts.join("bulk-frees.svg").exists());
    assert!(!charts.join("parallel-free.svg").exists());
}

#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    for line in ["--help", "--version", "reproduce --help"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux");
        let program = assert_cmd::cargo::cargo_bin("zonal-reproduce");
        let mut command = std::process::Command::new(program);
        let run = command.args(line.split(' ')).stdout(full).output().expect("it starts");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("cannot print the results"), "{line}: {said}");
    }
}

//! The cells of the ageing, and going on with them. Here and not beside what it tests: whatever asks
//! for all subjects compiles all of them, and the unit tests would do so a second time.

use clap::Parser;
use std::fs;
use zonal_bench_all::aging::{AgingArgs, AgingLine, choose, run};
use zonal_bench_all::registry;

fn args(line: &str) -> AgingArgs {
    AgingLine::parse_from(line.split(' ')).args
}

#[test]
fn cells_and_subjects() {
    let args = args("aging --fill 50,85 --cpus 2,8 --seed 1,2,3 --subjects all");
    assert_eq!(args.specs().len(), 4 * 4 * 3);
    let entries = registry::all();
    let chosen = choose(&args.subjects, &entries).expect("there are some");
    assert!(chosen.iter().any(|entry| entry.profile.name == "Linux316"));
    assert!(chosen.iter().all(|entry| entry.profile.max_order >= 9));
}

#[test]
fn an_unknown_subject_is_named() {
    let args = args("aging --subjects nonsense");
    let entries = registry::all();
    let error = choose(&args.subjects, &entries).err();
    assert!(error.is_some_and(|error| error.to_string().contains("nonsense")));
}

/// What is in the file is not run again, and stays there.
#[test]
fn it_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("cells.json");
    let rows_after = |seeds: &str| {
        let line = format!(
            "aging --memory 64M --rounds 2 --mix frames --subjects zonal --no-progress \
             --seed {seeds} --out {}",
            path.display()
        );
        run(&args(&line), &registry::all(), &mut Vec::new()).expect("it runs");
        fs::read_to_string(&path).expect("it was written")
    };
    let (first, both) = (rows_after("1"), rows_after("1,2"));
    assert_eq!((first.lines().count(), both.lines().count()), (1, 2));
    assert!(both.starts_with(&first), "with the time that it took, and when");
}

/// A row that an earlier run made is printed as that run's.
#[test]
fn a_row_says_which_run_made_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("cells.json");
    let line = format!(
        "aging --memory 64M --rounds 2 --mix frames --subjects zonal --no-progress --json --out {}",
        path.display()
    );
    let printed = || {
        let mut out = Vec::new();
        run(&args(&line), &registry::all(), &mut out).expect("it runs");
        String::from_utf8(out).expect("JSON")
    };
    let first = printed();
    let (head, tail) = first.split_once("\"date\":\"").expect("a date");
    let (_, tail) = tail.split_once('"').expect("its end");
    let earlier = format!("{head}\"date\":\"2001-02-03T04:05:06Z\"{tail}");
    assert_ne!(first, earlier);
    fs::write(&path, &earlier).expect("it is written");
    assert_eq!(printed(), earlier);
}

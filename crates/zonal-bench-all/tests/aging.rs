//! The cells of the ageing, and going on with them. Here and not beside what it tests: whatever asks
//! for all subjects compiles all of them, and the unit tests would do so a second time.

use clap::Parser;
use std::fs;
use zonal_bench_all::aging::{AgingArgs, AgingLine, choose, none_is_missing, run};
use zonal_bench_all::registry;

fn args(line: &str) -> AgingArgs {
    AgingLine::parse_from(line.split(' ')).args
}

#[test]
fn cells_and_subjects() {
    let args = args("aging --fill 50,85 --cpus 2,8 --seed 1,2,3 --subjects all");
    assert_eq!(args.specs().len(), 5 * 4 * 3);
    let entries = registry::all();
    let chosen = choose(&args.subjects, &entries).expect("there are some");
    assert!(chosen.iter().any(|entry| entry.profile.name == "Linux316"));
    assert!(chosen.iter().all(|entry| entry.profile.max_order >= 9));
}

#[test]
fn what_is_named_twice_is_run_once() {
    let args =
        args("aging --mix frames,batches,frames --seed 2,1,2 --subjects zonal,linux416,Zonal,all");
    let runs: Vec<_> = args.specs().iter().map(|spec| (spec.mix.to_string(), spec.seed)).collect();
    let wanted = [("frames", 2), ("frames", 1), ("batches", 2), ("batches", 1)];
    assert_eq!(runs, wanted.map(|(mix, seed)| (mix.to_owned(), seed)));
    let entries = registry::all();
    let chosen = choose(&args.subjects, &entries).expect("there are some");
    let mut names: Vec<_> = chosen.iter().map(|entry| entry.profile.name).collect();
    assert_eq!(names[..2], ["Zonal", "Linux416"]);
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

/// What others came to is shown, and that one that was named has no result is told. A tree of bits has room for 64 GiB.
#[cfg(feature = "peers")]
#[test]
fn a_subject_that_fails_is_a_failure_if_it_was_named() {
    let line = "aging --memory 65G,64M --rounds 1 --mix frames --no-progress --subjects";
    let subjects = |names: &str| {
        let mut out = Vec::new();
        let done = run(&args(&format!("{line} {names}")), &registry::all(), &mut out);
        (done.map_err(|error| error.to_string()), String::from_utf8(out).expect("text"))
    };
    let (done, shown) = subjects("bitmap-allocator");
    assert_eq!(done, Err("no result for bitmap-allocator".to_owned()));
    assert!(shown.contains("64 MiB"), "{shown}");
    let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert!(none_is_missing(&named(&["all"]), &["talc"]).is_ok());
    let missing = none_is_missing(&named(&["all", "Talc"]), &["talc", "zonal", "talc"]);
    assert_eq!(missing.expect_err("it was").to_string(), "no result for talc");
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
    // What other programs wrote there stays as it is.
    let others = format!("{both}{{\"workload\":\"mixed\"}}\nno JSON");
    fs::write(&path, &others).expect("it is written");
    let all = rows_after("1,2,3");
    assert!(all.starts_with(&format!("{others}\n")) && all.lines().count() == 5, "{all}");
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

//! Subjects that are named and fail in one workload of several: the bench says so at its end, whatever the
//! workloads before and after it brought.

use std::sync::Arc;

use clap::Parser;
use zonal_bench::args::BenchLine;
use zonal_bench::bench;
use zonal_bench::case::{self, Case, Spec};
use zonal_bench::program::Every;
use zonal_bench::subject::{Profile, Subject, SubjectError};
use zonal_bench::subjects::Entry;
use zonal_bench::subjects::baseline::FreeList;
use zonal_bench::workload::Workload;
use zonal_cli::error::LabError;

/// A list that cannot be opened for one workload.
fn open(spec: &Spec, fails: Workload) -> Result<Arc<dyn Case>, SubjectError> {
    if spec.workload == fails {
        return Err(SubjectError::Init("planted".into()));
    }
    case::open::<FreeList, Every>(spec)
}

fn entries() -> [Entry; 3] {
    let named = |name| Profile { name, ..FreeList::PROFILE };
    [
        Entry::with::<Every>(named("fails-early"), |spec| open(spec, Workload::HotPair)),
        Entry::with::<Every>(named("fails-late"), |spec| open(spec, Workload::ParallelFree)),
        Entry::of::<FreeList, Every>(),
    ]
}

/// Of the subjects that are named, those that the bench says it has no result for.
fn without_result(subjects: &str) -> Option<String> {
    let line = "bench all --threads 1 --samples 1 --memory 320M --highalloc-memory 64M --json \
                --no-progress --subjects";
    let line = BenchLine::parse_from(line.split_whitespace().chain([subjects]));
    match bench::run(&line.args, &entries(), &mut Vec::new()) {
        Ok(()) => None,
        Err(LabError::NoResult { who }) => Some(who),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_named_subject_that_failed_once_is_not_forgotten() {
    let failing = |subjects: &str| without_result(subjects).expect("one fails");
    assert_eq!(failing("fails-early,free-list"), "fails-early", "before it brings rows");
    assert_eq!(failing("fails-late,free-list"), "fails-late", "after it brought rows");
    assert_eq!(failing("fails-late,fails-early"), "fails-early, fails-late");
    assert_eq!(without_result("free-list"), None);
}

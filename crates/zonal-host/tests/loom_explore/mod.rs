//! A model run on all its schedules, or those of few preemptions, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Explores `model`, with at most `preemptions` of them in a run, and prints what it took.
pub(crate) fn explore(
    name: &str,
    preemptions: Option<usize>,
    model: impl Fn() + Send + Sync + 'static,
) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    let start = Instant::now();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{name}: {runs} runs, {:.1?}", start.elapsed());
    assert!(runs > 10, "the model did not branch");
}

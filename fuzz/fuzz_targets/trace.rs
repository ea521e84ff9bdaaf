//! The reader of traces on any bytes, as a whole and line by line: it never panics, what it counts is
//! what is to be replayed, and what it has read it reads again from what `zonal record` writes.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run trace -s none -- -max_total_time=5`
#![no_main]

/// The source as it is: the program itself comes with the bench, and nothing else of it is needed
/// here.
#[path = "../../crates/zonal-replay/src/replay/parse.rs"]
mod parse;
#[path = "../../crates/zonal-replay/src/replay/trace.rs"]
#[allow(dead_code, reason = "the program uses what this does not")]
mod trace;

use libfuzzer_sys::fuzz_target;
use parse::{Item, Reason, line};
use trace::{Counts, Trace};
use zonal::Pfn;
use zonal::policy::trace::Event;
use zonal_trace::text::Text;

/// As `zonal record` writes it.
fn written(cpu: u32, event: Event) -> String {
    format!(
        "{:>16}-{:<7} [{cpu:03}] ..... {:>5}.{:09}: {}: {}",
        "page-fault1",
        7,
        0,
        12,
        event.name(),
        Text(event)
    )
}

/// What was read is read again from what is written of it: all but the flags without a meaning
/// here, which are not written.
fn check(item: &Item) {
    let (again, expected) = match *item {
        Item::Alloc { cpu, pfn, request, .. } => {
            let expected = Item::Alloc { cpu, pfn, request, unknown_flags: 0 };
            (written(cpu, Event::alloc(Pfn::new(pfn), &request)), expected)
        }
        Item::Free { cpu, pfn, order } => {
            (written(cpu, Event::Free { pfn: Pfn::new(pfn), order }), *item)
        }
        Item::Lost(events) => (format!("CPU:3 [LOST {events} EVENTS]"), *item),
        Item::Failed | Item::Accompanying | Item::Unknown | Item::Nothing => return,
    };
    assert_eq!(line(&again), Ok(expected), "of {again:?}");
}

fn say(reason: &Reason) {
    assert!(!reason.to_string().is_empty());
}

/// Reads all of it. On however many threads it is replayed, each step is done once.
fn read(bytes: &[u8]) {
    let trace = match Trace::read(bytes) {
        Ok(trace) => trace,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let Counts { allocs, frees, implied_frees, .. } = trace.counts;
    let steps = trace.script.steps();
    assert_eq!(steps as u64, allocs + frees + implied_frees);
    assert_eq!(trace.script.blocks() as u64, allocs);
    for threads in [1, 3] {
        let folded = trace.script.folded(threads);
        assert_eq!(folded.iter().map(|steps| steps.iter().count()).sum::<usize>(), steps);
    }
}

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    for bytes in bytes.split_inclusive(|&byte| byte == b'\n') {
        match line(&String::from_utf8_lossy(bytes)) {
            Ok(item) => check(&item),
            Err(reason) => say(&reason),
        }
    }
});

//! The reader of traces on any bytes, line by line as `zonal replay` reads them: it never
//! panics, and what it has read it reads again from what `zonal record` writes.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run trace -s none -- -max_total_time=5`
#![no_main]

/// The source as it is: the lab itself comes with its figures and peers, and nothing else of it
/// is needed here.
#[path = "../../crates/zonal-replay/src/replay/parse.rs"]
mod parse;

use libfuzzer_sys::fuzz_target;
use parse::{Item, Reason, line};
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

fuzz_target!(|bytes: &[u8]| {
    for bytes in bytes.split_inclusive(|&byte| byte == b'\n') {
        match line(&String::from_utf8_lossy(bytes)) {
            Ok(item) => check(&item),
            Err(reason) => say(&reason),
        }
    }
});

//! What a long trace takes of memory: alone in a program, because it is the whole process's.

use std::fmt::Write as _;
use std::io::{self, BufReader, Read};

use zonal_replay::replay::trace::Trace;

/// Events of the trace.
const EVENTS: u64 = 200_000;

/// The text of a trace, made as it is read: blocks live for a thousand events.
#[derive(Default)]
struct Text {
    event: u64,
    line: String,
    read: usize,
}

impl Text {
    fn next_line(&mut self) {
        self.line.clear();
        self.read = 0;
        let (nth, cpu) = (self.event / 2, self.event / 2 % 4);
        // In pairs: what was allocated 1000 events ago is freed, and something allocated.
        let pfn = if self.event.is_multiple_of(2) { nth.checked_sub(500) } else { Some(nth) };
        self.event += 1;
        let Some(pfn) = pfn else { return };
        let name = if self.event.is_multiple_of(2) { "alloc" } else { "free" };
        let _ = writeln!(
            self.line,
            "cc1-812 [{cpu:03}] ..... 411.2: mm_page_{name}: page=0 pfn={pfn} order=0 \
             migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE"
        );
    }
}

impl Read for Text {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.line.len() && self.event < EVENTS {
            self.next_line();
        }
        let rest = &self.line.as_bytes()[self.read..];
        let taken = rest.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&rest[..taken]);
        self.read += taken;
        Ok(taken)
    }
}

/// The most memory that this process had resident, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is there");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}

#[test]
fn an_event_takes_few_bytes() {
    let before = peak();
    let trace = Trace::read(BufReader::new(Text::default())).expect("a trace");
    let steps = trace.script.steps() as u64;
    assert!(steps > EVENTS - 1000, "{steps}");
    let folded = trace.script.folded(4);
    assert_eq!(folded.iter().map(|steps| steps.iter().count() as u64).sum::<u64>(), steps);
    let bytes = (peak() - before) / steps;
    println!("{bytes} bytes an event");
    // 8 a step, 4 for each of half as many blocks, and what vectors keep to grow.
    assert!(bytes < 16, "{bytes} bytes an event");
}

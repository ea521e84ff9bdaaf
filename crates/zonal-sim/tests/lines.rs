//! The model of cache lines: from where an access is served.

use zonal_sim::lines::{Capacity, Lines, Served};
use zonal_sim::machine;

/// Lines that are far enough apart for the prefetcher not to see a stream.
const APART: usize = 100;

/// Two sockets of 28 cores; caches of 16 lines for a core and 64 for a socket.
fn small() -> Lines {
    let machine = machine::builtin("skylake_2s_112cpu").expect("it is built in");
    let mut lines = Lines::new(&machine.topology, Capacity { private: 16, shared: 64 });
    assert!(lines.is_empty());
    assert_eq!(lines.grow(10), 0);
    assert_eq!(lines.grow(APART * 100 - 10), 10);
    assert_eq!(lines.len(), APART * 100);
    lines
}

fn read(lines: &mut Lines, core: u8, line: usize) -> Served {
    lines.access(line * APART, core, false, 0)
}

#[test]
#[should_panic(expected = "more cores")]
fn there_are_no_more_cores_than_a_set_has_bits() {
    let machine = machine::builtin("skylake_2s_112cpu").expect("it is built in");
    let topology = machine::Topology { cores_per_socket: 65, ..machine.topology };
    let _ = Lines::new(&topology, Capacity { private: 16, shared: 64 });
}

/// A core reads lines, wherever they come from.
fn read_all(lines: &mut Lines, core: u8, which: core::ops::RangeInclusive<usize>) {
    for line in which {
        read(lines, core, line);
    }
}

fn write(lines: &mut Lines, core: u8, line: usize) -> Served {
    lines.access(line * APART, core, true, 0)
}

#[test]
fn memory_is_near_or_far() {
    let mut lines = small();
    assert_eq!(lines.access(0, 0, false, 0), Served::Memory);
    assert_eq!(lines.access(APART, 0, false, 1), Served::MemoryFar);
    assert_eq!(lines.access(2 * APART, 28, true, 1), Served::Memory);
    assert_eq!(lines.access(3 * APART, 28, true, 0), Served::MemoryFar);
}

#[test]
fn a_line_that_was_had_is_private() {
    let mut lines = small();
    read(&mut lines, 3, 1);
    assert_eq!(read(&mut lines, 3, 1), Served::Private);
    assert_eq!(write(&mut lines, 3, 1), Served::Private, "no other core has it");
    assert_eq!(read(&mut lines, 3, 1), Served::Private);
}

#[test]
fn capacity_ages_out() {
    let mut lines = small();
    read(&mut lines, 0, 0);
    read_all(&mut lines, 0, 1..=16);
    assert_eq!(read(&mut lines, 0, 0), Served::Private, "16 fetches since");
    read_all(&mut lines, 0, 17..=33);
    assert_eq!(read(&mut lines, 0, 0), Served::Shared, "17: the core has it no more");
    // Other cores read so much that the socket has it no more either.
    read_all(&mut lines, 1, 40..=99);
    read_all(&mut lines, 0, 34..=50);
    assert_eq!(read(&mut lines, 0, 0), Served::Memory);
}

#[test]
fn what_streams_by_ages_out_too() {
    let mut lines = small();
    let mut after = |line, count| {
        read(&mut lines, 0, line);
        lines.pollute(0, count);
        // The prefetcher forgets the line.
        read_all(&mut lines, 0, line + 1..=line + 9);
        read(&mut lines, 0, line)
    };
    assert_eq!(after(0, 7), Served::Private);
    assert_eq!(after(10, 8), Served::Shared);
    assert_eq!(after(20, 56), Served::Memory);
}

#[test]
fn dirty_lines_are_near_or_far() {
    let mut lines = small();
    write(&mut lines, 0, 1);
    assert_eq!(read(&mut lines, 1, 1), Served::Near);
    assert_eq!(read(&mut lines, 1, 1), Served::Private);
    assert_eq!(read(&mut lines, 0, 1), Served::Private, "the writer keeps it to read");
    write(&mut lines, 0, 2);
    assert_eq!(read(&mut lines, 28, 2), Served::Far);
    write(&mut lines, 0, 3);
    assert_eq!(write(&mut lines, 29, 3), Served::Far);
    assert_eq!(write(&mut lines, 0, 3), Served::Far, "and back");
}

#[test]
fn a_dirty_line_that_aged_out_is_not_its_writers() {
    let mut lines = small();
    write(&mut lines, 0, 1);
    lines.pollute(0, 17);
    assert_eq!(read(&mut lines, 1, 1), Served::Shared);
}

#[test]
fn clean_lines_are_shared() {
    let mut lines = small();
    read(&mut lines, 0, 1);
    assert_eq!(read(&mut lines, 1, 1), Served::Shared);
    assert_eq!(read(&mut lines, 2, 1), Served::Shared);
    assert_eq!(read(&mut lines, 0, 1), Served::Private);
}

/// A write to a line that others have read takes it from them.
#[test]
fn an_upgrade_costs_the_way_to_the_sharers() {
    let mut lines = small();
    read(&mut lines, 0, 1);
    read(&mut lines, 1, 1);
    assert_eq!(write(&mut lines, 0, 1), Served::Near, "core 1 must give it up");
    assert_eq!(write(&mut lines, 0, 1), Served::Private);
    assert_eq!(read(&mut lines, 1, 1), Served::Near, "and has it no more");
    read(&mut lines, 28, 1);
    assert_eq!(write(&mut lines, 0, 1), Served::Far, "a sharer is on the other socket");
}

#[test]
fn neighbours_of_a_miss_are_streamed() {
    let mut lines = small();
    assert_eq!(lines.access(500, 0, false, 0), Served::Memory);
    assert_eq!(lines.access(501, 0, false, 0), Served::Streamed);
    assert_eq!(lines.access(502, 0, true, 0), Served::Streamed);
    assert_eq!(lines.access(499, 0, false, 0), Served::Memory, "the stream is at 502");
    assert_eq!(lines.access(498, 0, false, 0), Served::Streamed, "downwards as well");
    assert_eq!(lines.access(503, 1, false, 0), Served::Memory, "another core's prefetcher");
    // Eight other misses later the stream is forgotten.
    read_all(&mut lines, 0, 20..=27);
    assert_eq!(lines.access(503, 0, false, 0), Served::Shared);
    // What another core has written is not fetched ahead.
    lines.access(600, 2, true, 0);
    lines.access(601, 2, true, 0);
    assert_eq!(lines.access(600, 3, false, 0), Served::Near);
    assert_eq!(lines.access(601, 3, false, 0), Served::Near);
}

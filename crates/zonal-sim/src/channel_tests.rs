//! How long lines wait for the memory channels.

use super::*;

const LINE: u64 = 64 * Ticks::PER_CYCLE;

/// The wait of one line after a stretch of time in which `load` lines were fetched.
fn wait_after(load: u32) -> Ticks {
    let mut channel = Channel::new(Ticks(LINE));
    channel.fetch(Ticks(0), load);
    channel.fetch(Ticks(WINDOW), 1)
}

#[test]
fn waiting_grows_with_load() {
    let waits: Vec<_> = [0, 8, 16, 32, 48, 56, 60].map(wait_after).to_vec();
    assert_eq!(waits[0], Ticks(0), "nobody was there");
    assert!(waits.is_sorted_by(|a, b| a < b), "{waits:?}");
    // 64 lines fill the stretch; at half of that, half a service: 0.5 / (2 * 0.5).
    assert_eq!(waits[3], Ticks(LINE / 2));
    // And faster than it: three quarters are three times as bad as one half.
    assert_eq!(waits[4], Ticks(LINE * 3 / 2));
}

#[test]
fn the_queue_has_an_end() {
    let full = wait_after(64);
    assert_eq!(wait_after(10_000), full);
    assert!(full < Ticks(17 * LINE), "{full:?}");
}

#[test]
fn many_lines_wait_as_often() {
    let mut channel = Channel::new(Ticks(LINE));
    assert_eq!(channel.fetch(Ticks(0), 32), Ticks(0));
    assert_eq!(channel.fetch(Ticks(WINDOW), 10), Ticks(10 * LINE / 2));
}

#[test]
fn only_the_stretch_before_counts() {
    let mut channel = Channel::new(Ticks(LINE));
    channel.fetch(Ticks(0), 60);
    assert!(channel.fetch(Ticks(WINDOW - 1), 1) == Ticks(0), "the same stretch");
    assert_eq!(channel.fetch(Ticks(2 * WINDOW), 1), Ticks(0), "long ago");
    // One round of the memory later its place is another stretch's.
    let later = WINDOWS as u64 * WINDOW;
    assert_eq!(channel.fetch(Ticks(later + WINDOW), 1), Ticks(0));
}

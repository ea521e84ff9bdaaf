//! How long lines wait for the memory channels.

use super::*;

/// A stretch of time serves 256 lines.
const LINE: u64 = 64 * Ticks::PER_CYCLE;
const CAPACITY: u32 = (WINDOW / LINE) as u32;

/// The wait of one line, `stretches` after one in which `load` lines were fetched.
fn wait_after(load: u32, stretches: u64) -> Ticks {
    let mut channel = Channel::new(Ticks(LINE));
    channel.fetch(Ticks(0), load);
    channel.fetch(Ticks(stretches * WINDOW), 1)
}

#[test]
fn waiting_grows_with_load() {
    let eighths: Vec<_> = (0..8).map(|part| wait_after(part * CAPACITY / 8, 1)).collect();
    assert_eq!(eighths[0], Ticks(0), "nobody was there");
    assert!(eighths.is_sorted_by(|a, b| a < b), "{eighths:?}");
    // At half of what can be served, half a service: 0.5 / (2 * 0.5).
    assert_eq!(eighths[4], Ticks(LINE / 2));
    // And faster than the load: three quarters are three times as bad as one half.
    assert_eq!(eighths[6], Ticks(LINE * 3 / 2));
}

#[test]
fn what_was_not_served_is_waited_for() {
    let full = wait_after(CAPACITY, 1);
    assert!(Ticks(4 * LINE) < full && full < Ticks(5 * LINE), "{full:?}");
    assert_eq!(wait_after(CAPACITY + 100, 1), Ticks(full.0 + 100 * LINE));
    // What one stretch leaves the next ones work off.
    assert_eq!(wait_after(3 * CAPACITY, 1), Ticks(full.0 + u64::from(2 * CAPACITY) * LINE));
    assert_eq!(wait_after(3 * CAPACITY, 2), Ticks(u64::from(CAPACITY) * LINE));
    assert_eq!(wait_after(3 * CAPACITY, 3), Ticks(0));
}

#[test]
fn many_lines_wait_as_often() {
    let mut channel = Channel::new(Ticks(LINE));
    assert_eq!(channel.fetch(Ticks(0), CAPACITY / 2), Ticks(0));
    assert_eq!(channel.fetch(Ticks(WINDOW), 10), Ticks(10 * LINE / 2));
}

#[test]
fn only_stretches_before_count() {
    let mut channel = Channel::new(Ticks(LINE));
    channel.fetch(Ticks(0), CAPACITY / 2);
    assert_eq!(channel.fetch(Ticks(WINDOW - 1), 1), Ticks(0), "the same stretch");
    assert_eq!(channel.fetch(Ticks(2 * WINDOW), 1), Ticks(0), "worked off long ago");
    // So far back nothing is remembered, and a CPU that is so far behind is not counted.
    let far = WINDOWS as u64;
    assert_eq!(wait_after(100 * CAPACITY, far), Ticks(0));
    let mut channel = Channel::new(Ticks(LINE));
    channel.fetch(Ticks(far * WINDOW), CAPACITY / 2);
    channel.fetch(Ticks(0), CAPACITY);
    assert_eq!(channel.fetch(Ticks((far + 1) * WINDOW), 1), Ticks(LINE / 2));
}

/// What is remembered from one question to the next does not show.
#[test]
fn answers_are_those_of_a_channel_that_remembers_none() {
    let mut dice = fastrand::Rng::with_seed(1);
    let mut channel = Channel::new(Ticks(LINE));
    let (mut now, mut waited) = (0, 0);
    for _ in 0..20_000 {
        now += dice.u64(..WINDOW / 32);
        let back = if dice.u32(..8) == 0 { 20 * WINDOW } else { 2 * WINDOW };
        let (at, count) = (Ticks(now.saturating_sub(dice.u64(..back))), dice.u32(..20));
        let mut forgetful = Channel { uses: channel.uses, ..Channel::new(Ticks(LINE)) };
        forgetful.asked = u64::MAX;
        let wait = channel.fetch(at, count);
        assert_eq!(wait, forgetful.fetch(at, count));
        waited += u32::from(wait > Ticks(0));
    }
    assert!(waited > 10_000, "{waited}");
}

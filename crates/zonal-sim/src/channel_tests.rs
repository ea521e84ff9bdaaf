//! How long lines wait for the memory channels.

use super::*;

/// A stretch of time serves 64 lines.
const LINE: u64 = 64 * Ticks::PER_CYCLE;
const CAPACITY: u32 = (WINDOW / LINE) as u32;
const PAGE: u32 = 64;

fn channel() -> Channel {
    Channel::new(Ticks(LINE))
}

/// Fetches lines in a turn that begins in a stretch.
fn fetch(channel: &mut Channel, window: u64, count: u32) -> Ticks {
    channel.fetch(Ticks(window * WINDOW), Ticks(window * WINDOW), count)
}

/// The wait of `count` lines, `stretches` after one in which `load` lines were fetched.
fn wait_after(load: u32, stretches: u64, count: u32) -> Ticks {
    let mut channel = channel();
    fetch(&mut channel, 0, load);
    fetch(&mut channel, stretches, count)
}

#[test]
fn waiting_grows_with_load() {
    let eighths: Vec<_> = (0..8).map(|part| wait_after(part * CAPACITY / 8, 1, 1)).collect();
    assert_eq!(eighths[0], Ticks(0), "no other was there");
    assert!(eighths.is_sorted_by(|a, b| a < b), "{eighths:?}");
    // At half of what can be served, half a service: 0.5 / (2 * 0.5).
    assert_eq!(eighths[4], Ticks(LINE / 2));
    // And faster than the load: three quarters are three times as bad as one half.
    assert_eq!(eighths[6], Ticks(LINE * 3 / 2));
}

#[test]
fn a_page_waits_for_all_that_was_not_served() {
    let turns = u64::from(PAGE_TURNS);
    let full = wait_after(CAPACITY, 1, PAGE);
    assert!(Ticks(4 * LINE * turns) < full && full < Ticks(5 * LINE * turns), "{full:?}");
    assert_eq!(wait_after(CAPACITY + 100, 1, PAGE), Ticks(full.0 + 100 * LINE));
    // What one stretch leaves the next ones work off.
    let left = |stretches| wait_after(100 * CAPACITY, stretches, PAGE);
    assert_eq!(left(1), Ticks(full.0 + u64::from(99 * CAPACITY) * LINE));
    assert_eq!(left(2), Ticks(u64::from(98 * CAPACITY) * LINE));
    assert_eq!(left(90), Ticks(u64::from(10 * CAPACITY) * LINE), "however long ago it was");
    assert_eq!(left(100), Ticks(0));
}

#[test]
fn a_line_waits_for_one_turn_of_each_page() {
    let page = wait_after(20 * CAPACITY, 2, PAGE);
    assert_eq!(wait_after(20 * CAPACITY, 2, 1), Ticks(page.0 / u64::from(PAGE_TURNS)));
    assert_eq!(wait_after(20 * CAPACITY, 2, TURN), Ticks(page.0 / u64::from(PAGE_TURNS)));
    assert_eq!(wait_after(20 * CAPACITY, 2, 2 * PAGE), page, "it does not become more meanwhile");
    // The others that ask at the same time are waited for turn by turn.
    assert_eq!(wait_after(CAPACITY / 2, 1, TURN), Ticks(LINE / 2));
    assert_eq!(wait_after(CAPACITY / 2, 1, 3 * TURN), Ticks(3 * LINE / 2));
}

#[test]
fn only_stretches_before_count() {
    let mut busy = channel();
    fetch(&mut busy, 0, CAPACITY / 2);
    assert_eq!(fetch(&mut busy, 0, 1), Ticks(0), "the same stretch");
    assert_eq!(fetch(&mut busy, 2, 1), Ticks(0), "worked off long ago");
    // A turn that comes to a later time waits as at its beginning.
    let mut ahead = channel();
    fetch(&mut ahead, 20, 3 * CAPACITY);
    let later = Ticks(30 * WINDOW);
    let wait = fetch(&mut ahead, 21, PAGE);
    assert_eq!(ahead.fetch(Ticks(21 * WINDOW), later, PAGE), wait);
    // And its lines are waited for when that time has come.
    assert_eq!(fetch(&mut ahead, 30, PAGE), Ticks(0));
    assert!(fetch(&mut ahead, 31, PAGE) > Ticks(0));
}

/// What is forgotten and what is remembered from one question to the next does not show.
#[test]
fn answers_are_those_of_a_channel_that_forgets_nothing() {
    let mut dice = fastrand::Rng::with_seed(1);
    let mut channel = channel();
    let mut uses = vec![0_u32; 4000];
    let (mut now, mut waited) = (10 * WINDOW, 0);
    while now < 3900 * WINDOW {
        now += dice.u64(..WINDOW / 8);
        if dice.u32(..1000) == 0 {
            now += dice.u64(..200) * WINDOW;
        }
        let began = now - dice.u64(..3 * WINDOW);
        let at = began + dice.u64(..9 * WINDOW);
        let count = dice.u32(..9);
        let mut fresh = Channel::new(Ticks(LINE));
        let left = uses[..(began / WINDOW) as usize]
            .iter()
            .fold(0_u64, |left, &used| (left + u64::from(used)).saturating_sub(fresh.capacity));
        let before = (began / WINDOW).saturating_sub(1);
        fresh.first = before;
        *fresh.uses_mut(before) = uses[before as usize];
        let queue = fresh.wait_in(began / WINDOW).queue;
        let turns = u64::from(count.div_ceil(TURN));
        let expected = (queue * turns as f64) as u64 + left * LINE * turns / u64::from(PAGE_TURNS);
        uses[(at / WINDOW) as usize] += count;
        assert_eq!(channel.fetch(Ticks(began), Ticks(at), count), Ticks(expected));
        waited += u32::from(expected > 0);
    }
    assert!(waited > 10_000, "{waited}");
}

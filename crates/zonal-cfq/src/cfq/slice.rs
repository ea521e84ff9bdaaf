//! Slices: how long a queue may use the device at a time.
//!
//! A level above 4 adds a fifth of the base slice, one below takes a fifth away. If the base slice
//! times the busy queues exceeds the target latency times the group's share, each slice shrinks in
//! that proportion, but not below the floor: twice the idle wait, in proportion to the level.

use crate::request::Level;
use crate::units::Span;

use super::tunables::Tunables;

/// The slice of a level before it shrinks.
pub(super) fn full(tunables: &Tunables, sync: bool, level: Level) -> Span {
    let base = if sync { tunables.slice_sync } else { tunables.slice_async };
    // Level 4 is base, each step is a fifth of it: 9/5 down to 2/5.
    Span((base.0 / 5).saturating_mul(9 - u64::from(level.get())))
}

/// What a slice shrinks to with `busy` busy queues in a group whose turn is `turn` long.
pub(super) fn shrunk(tunables: &Tunables, full: Span, busy: u32, turn: Span) -> Span {
    let expected = Span(tunables.slice_sync.0.saturating_mul(u64::from(busy)));
    if !tunables.low_latency || expected <= turn {
        return full;
    }
    let floor = full.min(tunables.slice_idle.scaled(2, 1).scaled(full.0, tunables.slice_sync.0));
    full.scaled(turn.0, expected.0).max(floor)
}

/// How many requests an async queue dispatches before others have their turn.
pub(super) fn async_quota(tunables: &Tunables, level: Level) -> u32 {
    let steps = u32::from(Level::COUNT - level.get());
    tunables.slice_async_requests.saturating_mul(2 * steps)
}

/// How far behind now a queue is placed in a group of `queues`.
pub(super) fn offset(tunables: &Tunables, queues: u32, sync: bool, level: Level) -> Span {
    let Some(highest) = Level::new(0) else { return Span::ZERO };
    let most = full(tunables, true, highest).0;
    // An async slice may be set to more than the highest sync one: then not behind at all.
    let lacks = most.saturating_sub(full(tunables, sync, level).0);
    Span(lacks.saturating_mul(u64::from(queues.saturating_sub(1))))
}

/// The number of busy queues, which follows a rise at once in part and a fall slowly.
#[derive(Debug, Default)]
pub(super) struct Average(u32);

impl Average {
    pub(super) fn get(&self) -> u32 {
        self.0
    }

    /// Three parts of the larger, one of the smaller, rounded.
    pub(super) fn update(&mut self, busy: u32) -> u32 {
        let (low, high) = (self.0.min(busy), self.0.max(busy));
        self.0 = (3 * high + low + 2) / 4;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(level: u8) -> Level {
        Level::new(level).expect("below 8")
    }

    #[test]
    fn levels_step_by_a_fifth() {
        let tunables = Tunables::default();
        let slices = |sync| [0, 4, 7].map(|it| full(&tunables, sync, level(it)).as_millis());
        assert_eq!(slices(true), [180.0, 100.0, 40.0]);
        assert_eq!(slices(false), [72.0, 40.0, 16.0]);
        assert_eq!([0, 4, 7].map(|it| async_quota(&tunables, level(it))), [32, 16, 4]);
    }

    /// The cases of the source: readers of level 4 alone in one group, by hand: 100 ms as long as
    /// the target has room for 100 ms each, then the target over the readers, then the floor of 16.
    #[test]
    fn slices_of_the_source() {
        let of = |target, busy| {
            let tunables =
                Tunables { target_latency: Span::from_millis(target), ..Tunables::default() };
            let base = full(&tunables, true, level(4));
            shrunk(&tunables, base, busy, tunables.target_latency).as_millis()
        };
        let at_300 = [1, 2, 3, 4, 8, 16, 18, 19, 64].map(|busy| of(300, busy));
        assert_eq!(at_300[..6], [100.0, 100.0, 100.0, 75.0, 37.5, 18.75]);
        assert!((at_300[6] - 300.0 / 18.0).abs() < 1e-5, "{}", at_300[6]);
        assert_eq!(at_300[7..], [16.0, 16.0]);
        assert_eq!([1, 4, 6, 8, 16].map(|busy| of(600, busy)), [100.0, 100.0, 100.0, 75.0, 37.5]);
        let off = Tunables { low_latency: false, ..Tunables::default() };
        assert_eq!(shrunk(&off, off.slice_sync, 16, off.target_latency), off.slice_sync);
    }

    /// Half the weight is half the turn: 150 ms for 4 readers. The floor of level 7 is 16 × 40/100.
    #[test]
    fn slices_of_a_group_and_of_a_low_level() {
        let tunables = Tunables::default();
        let half = Span::from_millis(150);
        assert_eq!(shrunk(&tunables, tunables.slice_sync, 4, half), Span::from_micros(37_500));
        let low = full(&tunables, true, level(7));
        assert_eq!(shrunk(&tunables, low, 4, half), Span::from_millis(15));
        assert_eq!(shrunk(&tunables, low, 100, half), Span::from_micros(6_400));
    }

    #[test]
    fn queues_are_placed_by_what_they_get_less_than_the_highest() {
        let tunables = Tunables::default();
        assert_eq!(offset(&tunables, 1, true, level(7)), Span::ZERO);
        assert_eq!(offset(&tunables, 3, true, level(4)), Span::from_millis(160));
        assert_eq!(offset(&tunables, 3, false, level(4)), Span::from_millis(280));
    }

    #[test]
    fn the_average_rises_faster_than_it_falls() {
        let mut average = Average::default();
        assert_eq!([16, 16, 16].map(|busy| average.update(busy)), [12, 15, 16]);
        assert_eq!([0, 0].map(|busy| average.update(busy)), [12, 9]);
        assert_eq!(average.get(), 9);
    }
}

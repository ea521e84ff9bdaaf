//! What queues and processes are in the habit of: how long they think between requests, and whether
//! they seek. Waiting for a request is worth it only if one comes soon, and close.

use crate::units::{Sector, Sectors, Span, Time};

use super::tunables::{DEVICE_DEPTH, DEVICE_SAMPLES, SEEK, SMALL, Tunables};

/// How long it takes from the end of a request to the next one: a mean in which each new sample has
/// the weight of an eighth.
#[derive(Debug)]
pub(super) struct ThinkTime {
    /// When a request ended last.
    pub(super) last_end: Time,
    /// 256 for each sample, decaying.
    samples: u64,
    /// 256 ns for each ns of a sample, decaying.
    total: u64,
    mean: Span,
}

/// What [`ThinkTime::samples`] exceeds once there is anything to go by.
const ENOUGH: u64 = 80;

impl ThinkTime {
    pub(super) fn new(now: Time) -> Self {
        Self { last_end: now, samples: 0, total: 0, mean: Span::ZERO }
    }

    /// A request came. Times above twice `idle` count as that.
    pub(super) fn update(&mut self, now: Time, idle: Span) {
        let time = now.since(self.last_end).min(idle.scaled(2, 1));
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total).saturating_add(time.0.saturating_mul(256)) / 8;
        self.mean = Span((self.total + 128) / self.samples);
    }

    /// The mean, if there is enough to go by.
    pub(super) fn mean(&self) -> Option<Span> {
        (self.samples > ENOUGH).then_some(self.mean)
    }

    /// Whether waiting for `idle` would be in vain.
    pub(super) fn is_longer_than(&self, idle: Span) -> bool {
        self.mean().is_some_and(|mean| mean > idle)
    }
}

/// Which of the last 32 requests of a queue were far from the one before.
#[derive(Debug, Default)]
pub(super) struct Seeks {
    history: u32,
    /// Where the last one ended.
    position: Option<Sector>,
}

impl Seeks {
    /// A request came.
    pub(super) fn update(&mut self, tunables: &Tunables, start: Sector, sectors: Sectors) {
        let is_seek = if tunables.rotational {
            self.position.is_some_and(|last| last.distance(start) > SEEK)
        } else {
            sectors.0 < SMALL
        };
        self.history = self.history << 1 | u32::from(is_seek);
        self.position = Some(start + sectors);
    }

    /// More than one in eight.
    pub(super) fn are_many(&self) -> bool {
        self.history.count_ones() > 4
    }
}

/// Whether the device orders requests by itself: it had many at once, over enough of them.
#[derive(Debug, Default)]
pub(super) struct Depth {
    most: u32,
    samples: u32,
    orders: Option<bool>,
}

impl Depth {
    pub(super) fn orders(&self) -> bool {
        self.orders == Some(true)
    }

    /// `at_device` had not completed just now; `is_loaded` if there were more than a few requests in
    /// all, `could_be_more` if the queue whose turn it is had enough of them.
    pub(super) fn update(&mut self, at_device: u32, is_loaded: bool, could_be_more: bool) {
        self.most = self.most.max(at_device);
        let is_starved = !could_be_more && at_device < DEVICE_DEPTH;
        if self.orders() || !is_loaded || is_starved {
            return;
        }
        self.samples += 1;
        if self.samples > DEVICE_SAMPLES {
            self.orders = Some(self.most >= DEVICE_DEPTH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_needs_three_samples_and_is_capped() {
        let idle = Span::from_millis(8);
        let mut think = ThinkTime::new(Time::ZERO);
        for sample in 1..=20 {
            think.update(think.last_end + Span::from_millis(1), idle);
            // 32, 60, 84 of 256.
            assert_eq!(think.mean().is_some(), sample >= 3);
        }
        let mean = think.mean().expect("20 samples").as_millis();
        // The samples are rounded down: the mean is 2 % high.
        assert!((1.0..1.04).contains(&mean), "{mean}");
        for _ in 0..40 {
            think.update(think.last_end + Span::from_millis(5000), idle);
        }
        assert!(think.is_longer_than(idle) && !think.is_longer_than(Span::from_millis(17)));
    }

    #[test]
    fn one_jump_is_forgotten_and_many_are_not() {
        let tunables = Tunables::default();
        let mut seeks = Seeks::default();
        seeks.update(&tunables, Sector(1 << 30), Sectors(8));
        seeks.update(&tunables, Sector((1 << 30) + 8), Sectors(8));
        assert_eq!(seeks.history, 0, "nothing to jump from, then no jump");
        for jump in 1..=6u64 {
            seeks.update(&tunables, Sector(jump << 20), Sectors(8));
            assert_eq!(seeks.are_many(), jump > 4);
        }
    }

    #[test]
    fn the_device_is_asked_for_fifty_times() {
        let mut depth = Depth::default();
        (0..51).for_each(|_| depth.update(6, true, true));
        assert!(depth.orders());
        let mut depth = Depth::default();
        (0..51).for_each(|_| depth.update(2, true, true));
        assert!(!depth.orders());
        let mut depth = Depth::default();
        (0..500).for_each(|_| depth.update(2, true, false));
        (0..500).for_each(|_| depth.update(5, false, true));
        assert_eq!(depth.orders, None);
    }
}

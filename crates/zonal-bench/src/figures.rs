//! What a workload counts beside the time: its own figures, and the work done under the zone lock.
//!
//! ```
//! use zonal_bench::figures::{Figure, Figures};
//!
//! let half = Figures::of(Figure::Order0Rate, 3.0);
//! let mut both = half;
//! both.add(&half);
//! assert_eq!(both.get(Figure::Order0Rate), Some(6.0));
//! assert_eq!(both.get(Figure::SuccessRate), None);
//! ```

use crate::stats::median;

/// A figure that a row may have. The names are those of the JSON fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Figure {
    /// `page-fault1` and `random-free`: of the time, what frees took, in ns a frame.
    FreeNs,
    /// `thp-mix`: frames a second that the order-0 half allocated and freed.
    Order0Rate,
    /// `thp-mix`: frames a second that the order-9 half got as order-9 blocks.
    Order9Rate,
    /// `thp-mix`: frames a second that the order-9 half got as single frames instead.
    FallbackRate,
    /// `stress-highalloc`: requests for an order-9 block that were served, in percent.
    SuccessRate,
    /// `stress-highalloc`: the time of all requests, refused ones included, for each block that
    /// was had, in ns.
    MeanNsPerBlock,
    /// `stress-highalloc`: mean time of the requests that were served, in ns.
    MeanNsServed,
    /// `stress-highalloc`: requests made.
    Attempts,
    /// `stress-highalloc`: pages that compaction moved while requests were made.
    PagesMigrated,
    /// `stress-highalloc`: pages that reclaim freed while requests were made.
    PagesReclaimed,
    /// `fragment`: order-9 blocks that could be allocated.
    BlocksRecovered,
    /// `fragment`: order-9 blocks' worth of frames that were free then.
    BlocksPossible,
    /// `fragment --by-cpu`: aligned order-9 blocks in which no frame was in use then.
    BlocksPlaced,
    /// Batches of frames that per-CPU lists gave back to the zone.
    FreeBatches,
    /// Those of unmovable frames only, in percent of all.
    SingleUnmovable,
    /// Those of movable frames only, in percent of all.
    SingleMovable,
    /// Those of reclaimable frames only, in percent of all.
    SingleReclaimable,
    /// The most frames of work in one hold of the zone lock.
    HoldFramesMax,
}

impl Figure {
    /// All of them, in the order of their columns.
    pub const ALL: [Self; 18] = [
        Self::FreeNs,
        Self::Order0Rate,
        Self::Order9Rate,
        Self::FallbackRate,
        Self::SuccessRate,
        Self::MeanNsPerBlock,
        Self::MeanNsServed,
        Self::Attempts,
        Self::PagesMigrated,
        Self::PagesReclaimed,
        Self::BlocksRecovered,
        Self::BlocksPossible,
        Self::BlocksPlaced,
        Self::FreeBatches,
        Self::SingleUnmovable,
        Self::SingleMovable,
        Self::SingleReclaimable,
        Self::HoldFramesMax,
    ];

    /// Name of the JSON field and CSV column.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FreeNs => "free_ns",
            Self::Order0Rate => "order0_rate",
            Self::Order9Rate => "order9_rate",
            Self::FallbackRate => "fallback_rate",
            Self::SuccessRate => "success_rate",
            Self::MeanNsPerBlock => "mean_ns_per_block",
            Self::MeanNsServed => "mean_ns_served",
            Self::Attempts => "attempts",
            Self::PagesMigrated => "pages_migrated",
            Self::PagesReclaimed => "pages_reclaimed",
            Self::BlocksRecovered => "blocks_recovered",
            Self::BlocksPossible => "blocks_possible",
            Self::BlocksPlaced => "blocks_placed",
            Self::FreeBatches => "free_batches",
            Self::SingleUnmovable => "single_unmovable_percent",
            Self::SingleMovable => "single_movable_percent",
            Self::SingleReclaimable => "single_reclaimable_percent",
            Self::HoldFramesMax => "hold_frames_max",
        }
    }

    /// Head of its column in a table.
    #[must_use]
    pub const fn heading(self) -> &'static str {
        match self {
            Self::FreeNs => "of it frees",
            Self::Order0Rate => "order 0",
            Self::Order9Rate => "order 9",
            Self::FallbackRate => "fell back",
            Self::SuccessRate => "success",
            Self::MeanNsPerBlock => "each block",
            Self::MeanNsServed => "served in",
            Self::Attempts => "attempts",
            Self::PagesMigrated => "migrated",
            Self::PagesReclaimed => "reclaimed",
            Self::BlocksRecovered => "2 MiB blocks",
            Self::BlocksPossible => "of possible",
            Self::BlocksPlaced => "without a frame in use",
            Self::FreeBatches => "batches",
            Self::SingleUnmovable => "only unmovable",
            Self::SingleMovable => "only movable",
            Self::SingleReclaimable => "only reclaimable",
            Self::HoldFramesMax => "longest hold",
        }
    }

    /// The unit that a table shows it in.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Order0Rate | Self::Order9Rate | Self::FallbackRate => "M/s",
            Self::SuccessRate
            | Self::SingleUnmovable
            | Self::SingleMovable
            | Self::SingleReclaimable => "%",
            Self::FreeNs | Self::MeanNsPerBlock | Self::MeanNsServed => "ns",
            Self::Attempts
            | Self::BlocksRecovered
            | Self::BlocksPossible
            | Self::BlocksPlaced
            | Self::FreeBatches => "",
            Self::PagesMigrated | Self::PagesReclaimed => "pages",
            Self::HoldFramesMax => "frames",
        }
    }

    /// Its value as a table shows it.
    #[must_use]
    pub fn shown(self, value: f64) -> String {
        match self {
            Self::Order0Rate | Self::Order9Rate | Self::FallbackRate => {
                format!("{:.2}", value / 1e6)
            }
            Self::FreeNs | Self::SuccessRate => format!("{value:.1}"),
            Self::SingleUnmovable | Self::SingleMovable | Self::SingleReclaimable => {
                format!("{value:.2}")
            }
            _ => format!("{value:.0}"),
        }
    }
}

/// The figures of a sample or a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Figures([Option<f64>; Figure::ALL.len()]);

impl Figures {
    /// One figure.
    #[must_use]
    pub fn of(figure: Figure, value: f64) -> Self {
        Self::default().with(figure, value)
    }

    /// The same with one more.
    #[must_use]
    pub fn with(mut self, figure: Figure, value: f64) -> Self {
        self.0[figure as usize] = Some(value);
        self
    }

    /// A figure, if there is one.
    #[must_use]
    pub fn get(&self, figure: Figure) -> Option<f64> {
        self.0[figure as usize]
    }

    /// Adds what another thread of the same sample counted.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = match (*mine, theirs) {
                (Some(mine), Some(theirs)) => Some(mine + theirs),
                (mine, theirs) => mine.or(theirs),
            };
        }
    }

    /// The median of each figure over those that have it.
    #[must_use]
    pub fn median(samples: &[Self]) -> Self {
        let mut medians = Self::default();
        for (at, value) in medians.0.iter_mut().enumerate() {
            let mut values: Vec<f64> = samples.iter().filter_map(|it| it.0[at]).collect();
            *value = median(&mut values);
        }
        medians
    }
}

/// Classes of the histogram of lock holds.
pub const HOLD_CLASSES: usize = 13;

/// What was done under the zone lock of a preset, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWork {
    /// Holds by their work in frames: fewer than 1, 2, 4, … 2048, and more.
    pub holds: [u64; HOLD_CLASSES],
    /// The most work in one hold.
    pub hold_max: u32,
    /// Batches given back by linked per-CPU lists, if the preset has such.
    pub batches: Option<Batches>,
}

/// Batches that linked per-CPU lists gave back to a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// All of them.
    pub all: u64,
    /// Those that were full and of one migrate type: unmovable, movable, reclaimable.
    pub single_type: [u64; 3],
}

impl LockWork {
    /// Adds what was done in another zone or arena.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.holds.iter_mut().zip(other.holds) {
            *mine += theirs;
        }
        self.hold_max = self.hold_max.max(other.hold_max);
        if let Some(theirs) = other.batches {
            let mine = self.batches.get_or_insert_default();
            mine.all += theirs.all;
            for (mine, theirs) in mine.single_type.iter_mut().zip(theirs.single_type) {
                *mine += theirs;
            }
        }
    }

    /// Its part of a row: the longest hold, and for `batches` their number and kinds.
    #[must_use]
    pub fn figures(&self, mut figures: Figures, batches: bool) -> Figures {
        figures = figures.with(Figure::HoldFramesMax, f64::from(self.hold_max));
        let Some(given) = self.batches.filter(|given| batches && given.all > 0) else {
            return figures;
        };
        figures = figures.with(Figure::FreeBatches, given.all as f64);
        let kinds = [Figure::SingleUnmovable, Figure::SingleMovable, Figure::SingleReclaimable];
        for (kind, count) in kinds.into_iter().zip(given.single_type) {
            figures = figures.with(kind, 100.0 * count as f64 / given.all as f64);
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_place() {
        for (at, figure) in Figure::ALL.into_iter().enumerate() {
            assert_eq!(figure as usize, at);
            let same = Figure::ALL.iter().filter(|other| other.name() == figure.name());
            assert_eq!(same.count(), 1);
        }
    }

    #[test]
    fn medians_are_over_those_that_have_the_figure() {
        let figures = [
            Figures::of(Figure::Attempts, 1.0),
            Figures::of(Figure::Attempts, 3.0).with(Figure::SuccessRate, 50.0),
            Figures::default(),
        ];
        let median = Figures::median(&figures);
        assert_eq!(median.get(Figure::Attempts), Some(2.0));
        assert_eq!(median.get(Figure::SuccessRate), Some(50.0));
        assert_eq!(median.get(Figure::Order0Rate), None);
    }

    #[test]
    fn shares_of_batches_are_of_all_batches() {
        let batches = Batches { all: 10, single_type: [1, 6, 2] };
        let mut work = LockWork { hold_max: 7, batches: Some(batches), ..LockWork::default() };
        work.add(&work.clone());
        let figures = work.figures(Figures::default(), true);
        assert_eq!(figures.get(Figure::FreeBatches), Some(20.0));
        assert_eq!(figures.get(Figure::SingleMovable), Some(60.0));
        assert_eq!(figures.get(Figure::HoldFramesMax), Some(7.0));
        assert_eq!(work.figures(Figures::default(), false).get(Figure::FreeBatches), None);
    }
}

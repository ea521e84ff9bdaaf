//! `sparsetruncate-tiny` of mmtests: how many files of which size, and what is said of the times that
//! truncating them took. The simulator's workload and the benchmark on real files are both made of this.
//!
//! ```
//! use zonal_scenario::truncate::{Statistic, Times};
//!
//! let times = Times::new([3.0, 1.0, 2.0, 10.0]);
//! assert_eq!(times.of(Statistic::Min), 1.0);
//! assert_eq!(times.of(Statistic::Amean), 4.0);
//! assert_eq!(times.of(Statistic::Best(50)), 1.5, "the mean of the shorter half");
//! ```

/// Directories.
pub const DIRECTORIES: u32 = 16;
/// Files of all directories.
pub const FILES: u32 = 256;
/// Pages of a file: 4 MiB.
pub const PAGES: u32 = 1024;

/// What is said of a number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// The shortest.
    Min,
    /// The first to third quarter are no longer.
    Quartile(u8),
    /// This percentage is no longer; of 100 the longest.
    Max(u8),
    /// The mean.
    Amean,
    /// The standard deviation, of a sample.
    Stddev,
    /// The standard deviation in percent of the mean.
    Coeff,
    /// The mean of the shortest, this percentage of all.
    Best(u8),
}

impl Statistic {
    /// All that the table has, in its order.
    pub const ALL: [Self; 17] = [
        Self::Min,
        Self::Quartile(1),
        Self::Quartile(2),
        Self::Quartile(3),
        Self::Max(90),
        Self::Max(95),
        Self::Max(99),
        Self::Max(100),
        Self::Amean,
        Self::Stddev,
        Self::Coeff,
        Self::Best(99),
        Self::Best(95),
        Self::Best(90),
        Self::Best(75),
        Self::Best(50),
        Self::Best(25),
    ];

    /// Its name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Min => "Min",
            Self::Quartile(1) => "1st-qrtle",
            Self::Quartile(2) => "2nd-qrtle",
            Self::Quartile(_) => "3rd-qrtle",
            Self::Max(90) => "Max-90%",
            Self::Max(95) => "Max-95%",
            Self::Max(99) => "Max-99%",
            Self::Max(_) => "Max",
            Self::Amean => "Amean",
            Self::Stddev => "Stddev",
            Self::Coeff => "Coeff",
            Self::Best(99) => "Best99%Amean",
            Self::Best(95) => "Best95%Amean",
            Self::Best(90) => "Best90%Amean",
            Self::Best(75) => "Best75%Amean",
            Self::Best(50) => "Best50%Amean",
            Self::Best(_) => "Best25%Amean",
        }
    }

    /// Its name among the figures of a simulation.
    #[must_use]
    pub const fn figure(self) -> &'static str {
        match self {
            Self::Min => "file_min",
            Self::Quartile(1) => "file_1st_qrtle",
            Self::Quartile(2) => "file_2nd_qrtle",
            Self::Quartile(_) => "file_3rd_qrtle",
            Self::Max(90) => "file_max_90",
            Self::Max(95) => "file_max_95",
            Self::Max(99) => "file_max_99",
            Self::Max(_) => "file_max",
            Self::Amean => "file_mean",
            Self::Stddev => "file_stddev",
            Self::Coeff => "file_coeff",
            Self::Best(99) => "file_best_99",
            Self::Best(95) => "file_best_95",
            Self::Best(90) => "file_best_90",
            Self::Best(75) => "file_best_75",
            Self::Best(50) => "file_best_50",
            Self::Best(_) => "file_best_25",
        }
    }

    /// That of a name of the table.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|statistic| statistic.name() == name)
    }

    /// Its unit, where times are in µs.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        if matches!(self, Self::Coeff) { "%" } else { "us" }
    }
}

/// Times in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times(Vec<f64>);

impl Times {
    /// These, in any unit.
    #[must_use]
    pub fn new(times: impl IntoIterator<Item = f64>) -> Self {
        let mut times: Vec<f64> = times.into_iter().collect();
        times.sort_unstable_by(f64::total_cmp);
        Self(times)
    }

    /// What is said of them; 0 of none. O(n).
    #[must_use]
    pub fn of(&self, statistic: Statistic) -> f64 {
        match statistic {
            Statistic::Min => self.at(0),
            Statistic::Quartile(quarter) => self.at(25 * usize::from(quarter)),
            Statistic::Max(percent) => self.at(percent.into()),
            Statistic::Amean => mean(&self.0),
            Statistic::Stddev => self.deviation(),
            Statistic::Coeff if self.0.is_empty() => 0.0,
            Statistic::Coeff => self.deviation() * 100.0 / mean(&self.0),
            Statistic::Best(percent) => mean(&self.0[..self.count(percent.into())]),
        }
    }

    /// How many a percentage of them is, at least one.
    fn count(&self, percent: usize) -> usize {
        (self.0.len() * percent).div_ceil(100).clamp(1, self.0.len().max(1)).min(self.0.len())
    }

    fn at(&self, percent: usize) -> f64 {
        self.count(percent).checked_sub(1).map_or(0.0, |last| self.0[last])
    }

    fn deviation(&self) -> f64 {
        let mean = mean(&self.0);
        let squares: f64 = self.0.iter().map(|time| (time - mean).powi(2)).sum();
        (squares / (self.0.len().saturating_sub(1)).max(1) as f64).sqrt()
    }
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_those_computed_by_hand() {
        let times = Times::new((1..=200).rev().map(f64::from));
        let of = |statistic| times.of(statistic);
        let quartiles = [1, 2, 3].map(|quarter| of(Statistic::Quartile(quarter)));
        assert_eq!(quartiles, [50.0, 100.0, 150.0]);
        let most = [90, 95, 99, 100].map(|percent| of(Statistic::Max(percent)));
        assert_eq!(most, [180.0, 190.0, 198.0, 200.0]);
        assert_eq!((of(Statistic::Min), of(Statistic::Amean)), (1.0, 100.5));
        assert_eq!(of(Statistic::Best(25)), 25.5);
        // n (n + 1) / 12 of the numbers 1 to n.
        let deviation = (200.0 * 201.0 / 12.0_f64).sqrt();
        assert!((of(Statistic::Stddev) - deviation).abs() < 1e-9);
        assert!((of(Statistic::Coeff) - deviation / 1.005).abs() < 1e-9);
    }

    #[test]
    fn of_none_and_of_one_there_is_something_to_say() {
        for statistic in Statistic::ALL {
            assert_eq!(Times::default().of(statistic), 0.0, "{}", statistic.name());
            let spread = matches!(statistic, Statistic::Stddev | Statistic::Coeff);
            let one = if spread { 0.0 } else { 7.0 };
            assert_eq!(Times::new([7.0]).of(statistic), one, "{}", statistic.name());
        }
        for name in [Statistic::name, Statistic::figure] {
            let mut names: Vec<_> = Statistic::ALL.into_iter().map(name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), Statistic::ALL.len());
        }
    }
}

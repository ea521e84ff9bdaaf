//! Virtual time.
//!
//! ```
//! use zonal_sim::ticks::Ticks;
//! assert_eq!(Ticks::from_cycles(2.5).cycles(), 2);
//! assert_eq!(Ticks::from_cycles(2.5) + Ticks::from_cycles(2.5), Ticks::from_cycles(5.0));
//! ```

use core::ops::{Add, AddAssign, Sub};

/// A time or a duration in 1/256 of a nominal cycle, so that the small costs of a fast core do
/// not vanish by rounding.
///
/// 2⁶⁴ of them are 200 days of 4 GHz. Sums, differences and [`slowed`](Self::slowed) overflow as
/// those of whole numbers do: they panic with debug assertions, and wrap around without.
/// [`since`](Self::since) is the difference that does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(pub u64);

impl Ticks {
    /// Ticks of a cycle.
    pub const PER_CYCLE: u64 = 256;

    /// The nearest number of ticks; 0 for a negative number of cycles or for none at all (NaN),
    /// the most there are for what is beyond.
    #[must_use]
    pub fn from_cycles(cycles: f64) -> Self {
        Self((cycles * Self::PER_CYCLE as f64).round() as u64)
    }

    /// Whole cycles.
    #[must_use]
    pub const fn cycles(self) -> u64 {
        self.0 / Self::PER_CYCLE
    }

    /// Cycles with their fraction.
    pub(crate) fn exact_cycles(self) -> f64 {
        self.0 as f64 / Self::PER_CYCLE as f64
    }

    /// Less the fraction of a cycle.
    pub(crate) const fn whole(self) -> Self {
        Self(self.cycles() * Self::PER_CYCLE)
    }

    /// The time from `earlier` to here; 0 if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// As long on a CPU that takes `slowness` times as long, given in 1/256.
    ///
    /// # Panics
    /// With debug assertions, if the product with `slowness` is 2⁶⁴ or more.
    #[must_use]
    pub const fn slowed(self, slowness: u64) -> Self {
        Self(self.0 * slowness / Self::PER_CYCLE)
    }
}

impl Add for Ticks {
    type Output = Self;
    /// # Panics
    /// With debug assertions, if the sum is 2⁶⁴ ticks or more.
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Ticks {
    /// # Panics
    /// As the sum.
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Ticks {
    type Output = Self;
    /// # Panics
    /// With debug assertions, if `other` is later.
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_number_of_ticks_is() {
        assert_eq!(Ticks::from_cycles(-1.0), Ticks(0));
        assert_eq!(Ticks::from_cycles(f64::NAN), Ticks(0));
        assert_eq!(Ticks::from_cycles(f64::INFINITY), Ticks(u64::MAX));
        assert_eq!(Ticks(3).since(Ticks(4)), Ticks(0));
    }
}

//! Units: sectors, lengths, time, processes, groups. A sector is 512 bytes, time is in nanoseconds.
//!
//! ```
//! use zonal_cfq::units::{Sector, Sectors, Span, Time};
//!
//! assert_eq!(Sector(8) + Sectors::from_bytes(4096), Sector(16));
//! assert_eq!(Time::ZERO + Span::from_millis(2), Time(2_000_000));
//! assert_eq!(Time(5).since(Time(9)), Span(0));
//! ```

use core::ops::{Add, AddAssign};

/// Bytes of a sector.
pub const SECTOR_BYTES: u64 = 512;

/// The number of a sector on its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sector(pub u64);

impl Sector {
    /// How far apart two sectors are, in sectors.
    #[must_use]
    pub const fn distance(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }

    /// Where in bytes it begins.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 * SECTOR_BYTES
    }
}

/// A number of sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sectors(pub u32);

impl Sectors {
    /// As many as hold `bytes`, the last perhaps in part.
    #[must_use]
    pub const fn from_bytes(bytes: u32) -> Self {
        Self(bytes.div_ceil(512))
    }

    /// Their bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 as u64 * SECTOR_BYTES
    }
}

impl Add<Sectors> for Sector {
    type Output = Self;

    fn add(self, sectors: Sectors) -> Self {
        Self(self.0.saturating_add(u64::from(sectors.0)))
    }
}

/// A point in time, in nanoseconds since the caller's clock began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The beginning of the clock.
    pub const ZERO: Self = Self(0);

    /// The time from `earlier` to this, nothing if it is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

/// A length of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// Milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// In milliseconds, for people.
    #[must_use]
    pub const fn as_millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// `self` times `numerator` over `denominator`, rounded down; `self` if `denominator` is 0.
    #[must_use]
    pub const fn scaled(self, numerator: u64, denominator: u64) -> Self {
        if denominator == 0 {
            return self;
        }
        let scaled = self.0 as u128 * numerator as u128 / denominator as u128;
        Self(if scaled > u64::MAX as u128 { u64::MAX } else { scaled as u64 })
    }
}

impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// A process, or whatever else asks for I/O and is to have its fair share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(pub u32);

/// A group of processes that share a weight. [`GroupId::ROOT`] is always there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);

impl GroupId {
    /// The group of processes that are in no other.
    pub const ROOT: Self = Self(0);
}

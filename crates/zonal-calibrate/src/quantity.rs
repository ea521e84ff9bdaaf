//! What is measured, and the samples of it.
//!
//! ```
//! use zonal_calibrate::quantity::{Ledger, Quantity, Sample};
//!
//! let mut ledger = Ledger::default();
//! for (value, lost_cpu) in [(4.0, false), (90.0, true), (5.0, false)] {
//!     ledger.add(Quantity::Locked, Sample { value, lost_cpu });
//! }
//! let figure = ledger.figure(Quantity::Locked).expect("two quiet samples");
//! assert_eq!((figure.median, figure.samples, figure.dropped), (4.5, 2, 1));
//! ```

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::time::Instant;

use zonal_bench::machine::Usage;
use zonal_bench::stats::median;

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Frequency of the time-stamp counter.
    Tsc,
    /// Frequency of a core while as many cores of its socket are busy.
    Core(u16),
    /// A load from the innermost cache, each depending on the one before.
    Inner,
    /// The same from a working set that just fits what the core has for itself.
    Private,
    /// The same from the cache that cores share.
    Shared,
    /// The same from memory.
    Memory,
    /// The same from the memory of another socket.
    MemoryFar,
    /// Loads from memory, a line after the other.
    Streamed,
    /// Round trip of a line between two CPUs that are near.
    NearTrip,
    /// Round trip of a line between two CPUs that are far.
    FarTrip,
    /// A load of a line that a near CPU has written.
    NearLine,
    /// A load of a line that a far CPU has written.
    FarLine,
    /// A load of a line that the sibling thread of the core has written.
    SiblingLine,
    /// A locked addition to a line in the innermost cache.
    Locked,
    /// Taking and releasing a spinlock that no other thread wants.
    Lock,
    /// Taking and releasing a reader-writer lock for reading.
    ReadLock,
    /// Counting a word up and down, without the lock prefix.
    Counter,
    /// Clearing a page that is in the innermost cache.
    ClearHot,
    /// Clearing pages one after the other, from memory.
    ClearCold,
    /// Copying pages one after the other, from memory.
    CopyCold,
    /// A page fault that maps the shared zero page.
    ReadFault,
    /// A page fault that allocates and clears a page.
    WriteFault,
    /// The fault that maps the huge zero page.
    HugeFault,
    /// Unmapping a page in a large range, nothing to free.
    UnmapZero,
    /// Unmapping a page in a large range, and freeing it.
    UnmapPage,
    /// Mapping or unmapping a range without pages.
    MapRange,
    /// Giving up one page that is mapped.
    DropOne,
    /// Giving up one page that is not mapped.
    DropNone,
    /// Waking a thread that sleeps on the same CPU.
    WakeHere,
    /// Waking a thread that sleeps on another CPU.
    WakeAcross,
    /// All CPUs of a socket reading memory.
    ReadRate,
    /// All CPUs of a socket clearing memory.
    ClearRate,
    /// All CPUs of a socket copying memory; bytes copied.
    CopyRate,
}

/// The unit of a [`Quantity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Unit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// 10⁹ a second.
    #[serde(rename = "GHz")]
    Gigahertz,
    /// 2³⁰ bytes a second.
    #[serde(rename = "GiB/s")]
    GibSecond,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nanoseconds => "ns",
            Self::Gigahertz => "GHz",
            Self::GibSecond => "GiB/s",
        })
    }
}

impl Quantity {
    /// Its name, for programs.
    #[must_use]
    pub fn name(self) -> String {
        let name = match self {
            Self::Core(busy) => return format!("core_clock_{busy}_busy"),
            Self::Tsc => "tsc",
            Self::Inner => "load_inner",
            Self::Private => "load_private",
            Self::Shared => "load_shared",
            Self::Memory => "load_memory",
            Self::MemoryFar => "load_memory_far",
            Self::Streamed => "load_streamed",
            Self::NearTrip => "round_trip_near",
            Self::FarTrip => "round_trip_far",
            Self::NearLine => "line_near",
            Self::FarLine => "line_far",
            Self::SiblingLine => "line_sibling",
            Self::Locked => "locked_add",
            Self::Lock => "lock_unlock",
            Self::ReadLock => "read_lock_unlock",
            Self::Counter => "count_up_down",
            Self::ClearHot => "clear_page_cached",
            Self::ClearCold => "clear_page_memory",
            Self::CopyCold => "copy_page_memory",
            Self::ReadFault => "fault_zero_page",
            Self::WriteFault => "fault_new_page",
            Self::HugeFault => "fault_huge_zero_page",
            Self::UnmapZero => "unmap_zero_page",
            Self::UnmapPage => "unmap_and_free_page",
            Self::MapRange => "map_or_unmap_range",
            Self::DropOne => "give_up_mapped_page",
            Self::DropNone => "give_up_nothing",
            Self::WakeHere => "wake_same_cpu",
            Self::WakeAcross => "wake_other_cpu",
            Self::ReadRate => "read_rate",
            Self::ClearRate => "clear_rate",
            Self::CopyRate => "copy_rate",
        };
        name.into()
    }

    /// What it is, for people.
    #[must_use]
    pub fn about(self) -> String {
        let about = match self {
            Self::Core(1) => "clock of a core, alone",
            Self::Core(busy) => return format!("clock of a core, {busy} of its socket busy"),
            Self::Tsc => "time-stamp counter",
            Self::Inner => "load, innermost cache",
            Self::Private => "load, private cache",
            Self::Shared => "load, shared cache",
            Self::Memory => "load, memory",
            Self::MemoryFar => "load, memory of another socket",
            Self::Streamed => "load, next line of memory",
            Self::NearTrip => "round trip of a line, near",
            Self::FarTrip => "round trip of a line, far",
            Self::NearLine => "load of a line written nearby",
            Self::FarLine => "load of a line written far away",
            Self::SiblingLine => "load of a line the sibling wrote",
            Self::Locked => "locked add",
            Self::Lock => "lock and unlock, uncontended",
            Self::ReadLock => "read lock and unlock, uncontended",
            Self::Counter => "count up and down",
            Self::ClearHot => "clear 4 KiB in cache",
            Self::ClearCold => "clear 4 KiB in memory",
            Self::CopyCold => "copy 4 KiB in memory",
            Self::ReadFault => "page fault, zero page",
            Self::WriteFault => "page fault, new page cleared",
            Self::HugeFault => "page fault, huge zero page",
            Self::UnmapZero => "unmap a page, nothing to free",
            Self::UnmapPage => "unmap and free a page",
            Self::MapRange => "map or unmap an empty range",
            Self::DropOne => "give up one mapped page",
            Self::DropNone => "give up one page not mapped",
            Self::WakeHere => "wake a thread, same CPU",
            Self::WakeAcross => "wake a thread, other CPU",
            Self::ReadRate => "read memory, all CPUs of a socket",
            Self::ClearRate => "clear memory, all CPUs of a socket",
            Self::CopyRate => "copy memory, all CPUs of a socket",
        };
        about.into()
    }

    /// Whether a value of a machine file rests on it. The others are for people.
    #[must_use]
    pub const fn is_in_file(self) -> bool {
        !matches!(
            self,
            Self::NearTrip
                | Self::FarTrip
                | Self::SiblingLine
                | Self::ClearHot
                | Self::CopyCold
                | Self::WriteFault
                | Self::UnmapPage
        )
    }

    /// Its unit.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self {
            Self::Tsc | Self::Core(_) => Unit::Gigahertz,
            Self::ReadRate | Self::ClearRate | Self::CopyRate => Unit::GibSecond,
            _ => Unit::Nanoseconds,
        }
    }
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// In the unit of its quantity.
    pub value: f64,
    /// Whether a thread lost its CPU meanwhile, or the CPUs moved.
    pub lost_cpu: bool,
}

/// What the samples of a quantity say.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Samples these are over.
    pub samples: usize,
    /// Samples left out.
    pub dropped: usize,
    /// Whether every sample was to be left out, so that none was.
    pub disturbed: bool,
}

impl Figure {
    /// The figure of some samples; `None` of none. Samples that are no number count as dropped.
    #[must_use]
    pub fn of(samples: &[Sample]) -> Option<Self> {
        let sound = |sample: &&Sample| sample.value.is_finite();
        let values = |lost: bool| -> Vec<f64> {
            let keep = samples.iter().filter(sound).filter(|it| lost || !it.lost_cpu);
            keep.map(|sample| sample.value).collect()
        };
        let quiet = values(false);
        let disturbed = quiet.is_empty();
        let mut kept = if disturbed { values(true) } else { quiet };
        let median = median(&mut kept)?;
        Some(Self {
            median,
            min: *kept.first()?,
            max: *kept.last()?,
            samples: kept.len(),
            dropped: samples.len() - kept.len(),
            disturbed,
        })
    }
}

/// The samples of a run.
#[derive(Clone, Debug, Default)]
pub struct Ledger(BTreeMap<Quantity, Vec<Sample>>);

impl Ledger {
    /// Adds a sample.
    pub fn add(&mut self, quantity: Quantity, sample: Sample) {
        self.0.entry(quantity).or_default().push(sample);
    }

    /// Takes samples on the calling thread: `work` measures `quantities`, and the samples count as
    /// disturbed if the thread loses its CPU meanwhile.
    ///
    /// # Errors
    ///
    /// Those of `work`; nothing is added then.
    pub fn take<const N: usize, E>(
        &mut self,
        quantities: [Quantity; N],
        work: impl FnOnce() -> Result<[f64; N], E>,
    ) -> Result<(), E> {
        let (values, lost_cpu) = watched(work);
        for (quantity, value) in quantities.into_iter().zip(values?) {
            self.add(quantity, Sample { value, lost_cpu });
        }
        Ok(())
    }

    /// What the samples of a quantity say; `None` if there are none.
    #[must_use]
    pub fn figure(&self, quantity: Quantity) -> Option<Figure> {
        Figure::of(self.0.get(&quantity)?)
    }

    /// All figures.
    pub fn figures(&self) -> impl Iterator<Item = (Quantity, Figure)> + '_ {
        self.0.iter().filter_map(|(&quantity, samples)| Some((quantity, Figure::of(samples)?)))
    }
}

/// Runs `work`, and says whether the calling thread lost its CPU meanwhile.
pub fn watched<R>(work: impl FnOnce() -> R) -> (R, bool) {
    let (before, start) = (Usage::now(), Instant::now());
    let result = work();
    let wall = start.elapsed();
    (result, before.lost_cpu(&Usage::now(), wall))
}

/// Nanoseconds for each of `count`.
#[must_use]
pub fn each(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}

/// Nanoseconds that each of `count` calls of `step` takes.
pub fn repeat(count: usize, mut step: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut left = count;
    while left != 0 {
        step();
        left -= 1;
    }
    each(start.elapsed(), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[(f64, bool)]) -> Vec<Sample> {
        values.iter().map(|&(value, lost_cpu)| Sample { value, lost_cpu }).collect()
    }

    #[test]
    fn if_every_sample_is_disturbed_all_are_kept_and_it_says_so() {
        let figure = Figure::of(&samples(&[(3.0, true), (1.0, true)])).expect("two samples");
        assert_eq!((figure.median, figure.min, figure.max), (2.0, 1.0, 3.0));
        assert!(figure.disturbed && figure.dropped == 0);
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        let figure = Figure::of(&samples(&[(f64::NAN, false), (1.0, false)])).expect("one is");
        assert_eq!((figure.median, figure.dropped, figure.disturbed), (1.0, 1, false));
        assert_eq!(Figure::of(&samples(&[(f64::INFINITY, false)])), None);
        assert_eq!(Figure::of(&[]), None);
    }

    #[test]
    fn an_error_adds_no_sample() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.take([Quantity::Lock], || Err("no")), Err("no"));
        assert_eq!(ledger.figure(Quantity::Lock), None);
        assert_eq!(ledger.take([Quantity::Lock], || Ok::<_, ()>([2.0])), Ok(()));
        assert_eq!(ledger.figures().count(), 1);
    }
}

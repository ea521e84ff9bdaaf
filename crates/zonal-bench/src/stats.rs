//! From samples to rows: medians, classes, what is dropped.
//!
//! ```
//! use zonal_bench::stats::median;
//!
//! assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
//! ```

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::case::Sample;
use crate::figures::{Figure, Figures, HOLD_CLASSES};
use crate::rendezvous::Distance;
use crate::subject::{Group, Path};

/// The median; the mean of the middle two of an even number. `None` of nothing. Sorts `values`.
#[must_use]
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(values[values.len() / 2 - 1], upper))
}

/// Where a sample belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// To the rows of this distance; `None` on one thread.
    Of(Option<Distance>),
    /// Nowhere: the CPUs moved apart or together while it was taken.
    Moved,
}

/// Classifies a sample by the probes around it.
#[must_use]
pub fn class(sample: &Sample) -> Class {
    match sample.round_trip.map(|(before, after)| (Distance::of(before), Distance::of(after))) {
        None => Class::Of(None),
        Some((before, after)) if before == after => Class::Of(Some(before)),
        Some(_) => Class::Moved,
    }
}

/// Whether the threads of a sample did not have their CPUs to themselves from beginning to end.
#[must_use]
pub fn is_disturbed(sample: &Sample) -> bool {
    sample.started_apart() || sample.runs.iter().any(|run| run.lost_cpu)
}

/// Samples that will not be dropped.
#[must_use]
pub fn quiet(samples: &[Sample]) -> usize {
    let keep = |sample: &&Sample| !is_disturbed(sample) && class(sample) != Class::Moved;
    samples.iter().filter(keep).count()
}

/// How many times as many samples are taken while more than half will have to be dropped.
const POOR: usize = 2;
/// The same while none belongs to a row.
const HOMELESS: usize = 8;

/// How many samples to take where `asked` were asked for, after what the first were like.
#[must_use]
pub fn wanted(asked: usize, samples: &[Sample]) -> usize {
    let homeless = samples.iter().all(|sample| class(sample) == Class::Moved);
    let poor = quiet(samples).saturating_mul(2) < asked;
    let times = match (homeless, poor) {
        // Nothing is known yet.
        _ if samples.is_empty() => 1,
        (true, _) => HOMELESS,
        (false, true) => POOR,
        (false, false) => 1,
    };
    asked.saturating_mul(times)
}

/// The middle half of quiet samples spreads by less than this; where the CPUs share a lock, up to
/// half as much again was seen.
const MIDDLE: f64 = 2.0;
/// All of them spread by less than this.
const ALL: f64 = 10.0;
/// Samples that a row is over at least for anything to be said of it.
const FEW: usize = 3;

/// Whether samples, ascending, lie so far apart that their median says little.
fn is_scattered(ns: &[f64]) -> bool {
    let at = |part: usize| ns.get(ns.len() * part / 4).or(ns.last()).copied().unwrap_or(0.0);
    let (least, most) = (at(0), at(4));
    at(3) > MIDDLE * at(1) || most > ALL * least
}

/// One line of a result: a workload on a subject with a number of threads at a distance.
///
/// These are the fields of a JSON line and the columns of a CSV file; there the figures are
/// fields of their own, and the histogram (JSON only) is an array.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the workload.
    pub workload: &'static str,
    /// The variant of the workload, if it is not the plain one.
    pub variant: Option<String>,
    /// Name of the subject: a preset or a peer.
    pub subject: &'static str,
    /// The family of the subject; no column.
    pub group: Group,
    /// How its threads reach it.
    pub path: Path,
    /// Threads at work at once.
    pub threads: usize,
    /// Whether the CPUs shared a cache; none on one thread.
    pub distance: Option<Distance>,
    /// Median over the samples of the wall time per frame and thread, allocating and freeing it,
    /// in ns. For some workloads per block, see `unit`.
    pub ns_per_frame: f64,
    /// The fastest sample, likewise.
    pub min: f64,
    /// The slowest sample, likewise.
    pub max: f64,
    /// Samples these are over.
    pub samples: usize,
    /// Samples left out because a thread lost its CPU, or (over all distances) because the CPUs
    /// moved.
    pub dropped: usize,
    /// Whether a thread lost its CPU in every sample, so that none could be left out.
    pub disturbed: bool,
    /// Whether the samples lie so far apart that their median says little: the middle half by two
    /// times, or all by ten.
    pub scattered: bool,
    /// Throughput against `threads` times the throughput of one thread of the same subject in the
    /// same run: 1 is perfect. None if either row is [unsound](Self::is_sound).
    pub scaling: Option<f64>,
    /// What a frame is in `ns_per_frame`.
    pub unit: &'static str,
    /// Median round trip of a cache line between the CPUs, in ns.
    pub round_trip_ns: Option<f64>,
    /// What the workload counts beside the time: medians, or sums over all samples for what is
    /// counted under the zone lock.
    pub figures: Figures,
    /// Holds of the zone lock by their work in frames (fewer than 1, 2, 4, … 2048, and more),
    /// since the subject was opened; none for those that do not count.
    pub hold_frames: Option<[u64; HOLD_CLASSES]>,
    /// Bytes of frames the subject managed.
    pub memory: usize,
    /// Seed of the random orders.
    pub seed: u64,
    /// Whether the frames were written to.
    pub touch: bool,
    /// How the subject is made safe for several threads.
    pub note: &'static str,
    /// How its process ended, if it did before the run: then it has no numbers.
    pub died: Option<String>,
}

impl Row {
    /// Whether its median may be compared with others: the samples are at least three, had their
    /// CPUs to themselves and do not contradict each other.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.died.is_none() && self.samples >= FEW && !self.disturbed && !self.scattered
    }

    /// What is wrong with it, in a word.
    #[must_use]
    pub fn mark(&self) -> &'static str {
        match (self.disturbed, self.scattered) {
            _ if self.died.is_some() => "died",
            (true, _) => "disturbed",
            (false, true) => "scattered",
            (false, false) if self.samples < FEW => "few",
            (false, false) => "",
        }
    }
}

#[cfg(test)]
impl Row {
    /// A sound one, of near threads.
    pub(crate) fn example(subject: &'static str, threads: usize, ns: f64) -> Self {
        Self {
            workload: "page-fault1",
            variant: None,
            subject,
            group: Group::Zonal,
            path: Path::Shared,
            threads,
            distance: (threads > 1).then_some(Distance::Near),
            ns_per_frame: ns,
            min: ns,
            max: ns,
            samples: 15,
            dropped: 0,
            disturbed: false,
            scattered: false,
            scaling: None,
            unit: "frame",
            round_trip_ns: None,
            figures: Figures::default(),
            hold_frames: None,
            memory: 4 << 30,
            seed: 1,
            touch: false,
            note: "",
            died: None,
        }
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("Row", 22 + Figure::ALL.len())?;
        row.serialize_field("workload", self.workload)?;
        row.serialize_field("subject", self.subject)?;
        row.serialize_field("path", &self.path)?;
        row.serialize_field("threads", &self.threads)?;
        row.serialize_field("distance", &self.distance)?;
        // CSV has a text for what is no number, and JSON has not.
        let number = |value: f64| value.is_finite().then_some(value);
        row.serialize_field("ns_per_frame", &number(self.ns_per_frame))?;
        row.serialize_field("min", &number(self.min))?;
        row.serialize_field("max", &number(self.max))?;
        row.serialize_field("samples", &self.samples)?;
        row.serialize_field("dropped", &self.dropped)?;
        row.serialize_field("disturbed", &self.disturbed)?;
        row.serialize_field("scaling", &self.scaling)?;
        row.serialize_field("unit", self.unit)?;
        row.serialize_field("round_trip_ns", &self.round_trip_ns)?;
        row.serialize_field("variant", &self.variant)?;
        for figure in Figure::ALL {
            row.serialize_field(figure.name(), &self.figures.get(figure))?;
        }
        row.serialize_field("memory", &self.memory)?;
        row.serialize_field("seed", &self.seed)?;
        row.serialize_field("touch", &self.touch)?;
        row.serialize_field("scattered", &self.scattered)?;
        row.serialize_field("note", self.note)?;
        row.serialize_field("died", &self.died)?;
        row.end()
    }
}

/// The numbers of a [`Row`].
#[derive(Clone, Debug)]
pub struct Summary {
    /// Where it belongs.
    pub distance: Option<Distance>,
    /// Median, min and max of the ns per frame.
    pub ns: (f64, f64, f64),
    /// Samples in it.
    pub samples: usize,
    /// Samples left out.
    pub dropped: usize,
    /// Whether only disturbed samples were to be had.
    pub disturbed: bool,
    /// Whether they lie too far apart.
    pub scattered: bool,
    /// Median round trip.
    pub round_trip_ns: Option<f64>,
    /// Medians of the figures.
    pub figures: Figures,
}

/// Sums the samples of a case up, a [`Summary`] for each distance there was.
#[must_use]
pub fn summarise(samples: &[Sample]) -> Vec<Summary> {
    let moved = samples.iter().filter(|sample| class(sample) == Class::Moved).count();
    let classes = [None, Some(Distance::Near), Some(Distance::Far)];
    let mut summaries: Vec<Summary> = classes
        .into_iter()
        .filter_map(|distance| {
            let of = |sample: &&Sample| class(sample) == Class::Of(distance);
            summary(distance, &samples.iter().filter(of).collect::<Vec<_>>())
        })
        .collect();
    for summary in &mut summaries {
        summary.dropped += moved;
    }
    summaries
}

fn summary(distance: Option<Distance>, samples: &[&Sample]) -> Option<Summary> {
    let lost =
        |sample: &Sample| sample.started_apart() || sample.runs.iter().any(|run| run.lost_cpu);
    let quiet: Vec<&Sample> = samples.iter().copied().filter(|sample| !lost(sample)).collect();
    let disturbed = quiet.is_empty();
    let kept = if disturbed { samples } else { &quiet };
    let over = |value: &dyn Fn(&Sample) -> Option<f64>| -> Vec<f64> {
        kept.iter().filter_map(|sample| value(sample)).collect()
    };
    let figures: Vec<Figures> = kept.iter().map(|sample| sample.figures).collect();
    let mut ns = over(&|sample| Some(sample.ns_per_frame()));
    let middle = median(&mut ns)?;
    Some(Summary {
        distance,
        ns: (middle, *ns.first()?, *ns.last()?),
        samples: kept.len(),
        dropped: samples.len() - kept.len(),
        disturbed,
        scattered: is_scattered(&ns),
        round_trip_ns: median(&mut over(&|sample| sample.round_trip.map(|(before, _)| before))),
        figures: Figures::median(&figures),
    })
}

/// Fills in [`Row::scaling`] from the one-thread rows of the same subjects and workload, where
/// both are sound.
pub fn scale(rows: &mut [Row]) {
    let single: Vec<_> = rows
        .iter()
        .filter(|row| row.threads == 1 && row.is_sound())
        .map(|row| (row.workload, row.variant.clone(), row.subject, row.path, row.ns_per_frame))
        .collect();
    for row in rows.iter_mut().filter(|row| row.threads > 1 && row.is_sound()) {
        let key = (row.workload, &row.variant, row.subject, row.path);
        let alone = single.iter().find(|(w, v, s, p, _)| (*w, v, *s, *p) == key);
        row.scaling = alone.map(|(.., ns)| ns / row.ns_per_frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::ThreadRun;
    use core::time::Duration;
    use std::time::Instant;

    fn sample(ns: u64, lost_cpu: bool, round_trip: Option<(f64, f64)>) -> Sample {
        let start = Instant::now();
        let run = ThreadRun { frames: 1, start, wall: Duration::from_nanos(ns), lost_cpu };
        let runs = vec![run; 1 + usize::from(round_trip.is_some())];
        Sample { runs, round_trip, figures: Figures::default() }
    }

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn disturbed_samples_are_left_out_and_counted() {
        let samples = [sample(10, false, None), sample(90, true, None), sample(20, false, None)];
        let [summary] = &summarise(&samples)[..] else { panic!("one class") };
        assert_eq!((summary.ns, summary.samples), ((15.0, 10.0, 20.0), 2));
        assert_eq!((summary.dropped, summary.disturbed), (1, false));
        assert_eq!(quiet(&samples), 2);
    }

    #[test]
    fn if_all_are_disturbed_they_are_kept_and_flagged() {
        let [summary] = &summarise(&[sample(90, true, None)])[..] else { panic!("one class") };
        assert_eq!((summary.samples, summary.dropped, summary.disturbed), (1, 0, true));
    }

    #[test]
    fn distances_are_kept_apart_and_moves_dropped() {
        let near = Some((90.0, 95.0));
        let far = Some((380.0, 370.0));
        let samples = [
            sample(10, false, near),
            sample(70, false, far),
            sample(40, false, Some((90.0, 380.0))),
        ];
        let summaries = summarise(&samples);
        let classes: Vec<_> = summaries.iter().map(|s| (s.distance, s.ns.0, s.dropped)).collect();
        assert_eq!(classes, [(Some(Distance::Near), 10.0, 1), (Some(Distance::Far), 70.0, 1)]);
    }

    #[test]
    fn more_samples_are_taken_where_few_are_good() {
        let near = Some((90.0, 95.0));
        let (good, poor) = (sample(10, false, near), sample(10, true, near));
        let moved = || sample(10, false, Some((90.0, 380.0)));
        assert_eq!(wanted(3, &[]), 3);
        assert_eq!(wanted(3, &[good, poor]), 6);
        assert_eq!(wanted(2, &[sample(10, false, near), moved()]), 2);
        assert_eq!(wanted(3, &[moved(), moved()]), 24);
        assert_eq!(summarise(&[moved(), moved()]).len(), 0);
    }

    #[test]
    fn samples_that_contradict_each_other_are_scattered() {
        assert!(!is_scattered(&[38.0, 40.0, 41.0, 44.0, 90.0]), "one was unlucky");
        assert!(is_scattered(&[194.0, 198.0, 201.0, 210.0, 7654.0]), "by ten times");
        assert!(is_scattered(&[10.0, 11.0, 12.0, 24.0, 25.0]), "half of them are others");
        assert!(!is_scattered(&[5.0]) && !is_scattered(&[]));
    }

    #[test]
    fn threads_rates_add_up() {
        let start = Instant::now();
        let run = |ns| {
            let wall = Duration::from_nanos(ns);
            ThreadRun { frames: 100, start, wall, lost_cpu: false }
        };
        let runs = vec![run(1000); 2];
        let even = Sample { runs, round_trip: None, figures: Figures::default() };
        assert!((even.ns_per_frame() - 10.0).abs() < 1e-9);
        let uneven = Sample { runs: vec![run(1000), run(4000)], ..even };
        assert!((uneven.ns_per_frame() - 16.0).abs() < 1e-9, "{}", uneven.ns_per_frame());
    }

    #[test]
    fn a_thread_that_starts_late_spoils_the_sample() {
        let mut late = sample(1000, false, Some((90.0, 90.0)));
        assert!(!late.started_apart());
        late.runs[1].start += Duration::from_nanos(40);
        assert!(!late.started_apart());
        late.runs[1].start += Duration::from_nanos(60);
        assert!(late.started_apart());
        let good = sample(2000, false, Some((90.0, 90.0)));
        let [summary] = &summarise(&[late, good])[..] else { panic!("one class") };
        assert_eq!((summary.ns.0, summary.dropped), (2000.0, 1));
    }
}

//! Running workloads: opening subjects, calibrating, sampling in turn.
//!
//! All cases of a workload (subject × thread count) are open at once and sampled in turn, one
//! sample each a round, so that whatever drifts (clock speed, the distance of the CPUs, other
//! load) hits all of them alike.
//!
//! ```
//! use zonal_bench::engine::{Progress, Run, Silent};
//! use zonal_bench::options::Options;
//! use zonal_bench::workload::Workload;
//! use zonal_bench::{machine, pool::Pool, program::Quick, subjects};
//!
//! let run = Run {
//!     workload: Workload::HotPair,
//!     variants: vec![Options::default()],
//!     subjects: subjects::references::<Quick>().into_iter().take(1).collect(),
//!     threads: vec![1],
//!     memory: 64 << 20,
//!     touch: false,
//!     seed: 1,
//!     samples: 3,
//!     duration: None,
//! };
//! let pool = Pool::new(&machine::cpus()?[..1])?;
//! let outcome = run.carry_out(&pool, &mut Silent);
//! assert_eq!(outcome.rows[0].subject, "free-list");
//! # Ok::<(), std::io::Error>(())
//! ```

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use crate::case::{Case, CaseError, Sample, Spec};
use crate::child::{ChildError, Death};
use crate::figures::Figures;
use crate::options::Options;
use crate::pool::Pool;
use crate::stats::{self, Row};
use crate::subject::{Profile, Setup, SubjectError};
use crate::subjects::Entry;
use crate::workload::Workload;

/// How long a sample is to take: long against the clock's resolution and the start, short against
/// a scheduler's time slice.
const SAMPLE: Duration = Duration::from_millis(10);
/// Repetitions of a sample at least, on several threads: when the first thread is done the others
/// stop after the repetition they are in, which must be a small part of the whole.
const LEAST_TOGETHER: u64 = 6;
/// The same where a repetition alone takes more than [`LONG`].
const LEAST_LONG: u64 = 2;
/// A repetition long enough for two of them to do.
const LONG: Duration = Duration::from_millis(20);
/// Repetitions of a sample at most.
const MOST: u64 = 1 << 24;
/// How long it takes to calibrate a case of which nothing is known yet.
const CALIBRATION: Duration = Duration::from_millis(60);
/// Rounds at least when a duration is given.
const LEAST_ROUNDS: usize = 3;

/// One workload on some subjects.
#[derive(Clone, Debug)]
pub struct Run {
    /// The workload.
    pub workload: Workload,
    /// The variants of it.
    pub variants: Vec<Options>,
    /// The subjects.
    pub subjects: Vec<Entry>,
    /// Thread counts, ascending.
    pub threads: Vec<usize>,
    /// Bytes of frames each subject manages.
    pub memory: usize,
    /// Whether the frames are written to.
    pub touch: bool,
    /// Seed of the random orders.
    pub seed: u64,
    /// Samples of each subject and thread count; up to twice as many if most are disturbed, and up
    /// to eight times while the CPUs moved apart or together in all of them.
    pub samples: usize,
    /// Sample for this long instead.
    pub duration: Option<Duration>,
}

/// A subject that took no part, or not to the end.
#[derive(Clone, Debug)]
pub struct Absence {
    /// Its name.
    pub subject: &'static str,
    /// The thread count, if it is about one.
    pub threads: Option<usize>,
    /// Why.
    pub why: String,
    /// Whether something went wrong, rather than the workload not applying.
    pub failed: bool,
}

/// What a run brought.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// A row for each subject, thread count and distance.
    pub rows: Vec<Row>,
    /// A row for each case whose process ended before the run.
    pub dead: Vec<Row>,
    /// Who is missing.
    pub absent: Vec<Absence>,
}

impl Outcome {
    /// All rows, those without numbers last.
    #[must_use]
    pub fn all(&self) -> Vec<Row> {
        self.rows.iter().chain(&self.dead).cloned().collect()
    }
}

/// Told how far a run is.
pub trait Progress {
    /// A run began, or is known better: of the time it takes, `done` is over, and `left` is
    /// expected; `what` is next.
    fn step(&mut self, done: Duration, left: Duration, what: &str);

    /// Whether it is to end with what it has.
    fn is_over(&self) -> bool {
        false
    }
}

/// Does nothing with it.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn step(&mut self, _done: Duration, _left: Duration, _what: &str) {}
}

struct Open {
    entry: Entry,
    threads: usize,
    options: Options,
    case: Arc<dyn Case>,
    reps: u64,
    samples: Vec<Sample>,
    failed: bool,
    /// How long it took to be calibrated.
    calibration: Option<Duration>,
    /// How long its samples took, all that is around them included.
    sampling: Duration,
}

impl Open {
    /// What a sample takes: the mean so far; at first, what it took to be calibrated, which are two
    /// samples.
    fn sample_time(&self) -> Duration {
        match (u32::try_from(self.samples.len()), self.calibration) {
            (Ok(samples), _) if samples > 0 => self.sampling / samples,
            (_, Some(calibration)) => calibration / 2,
            (_, None) => CALIBRATION / 2,
        }
    }

    fn label(&self, workload: Workload) -> String {
        let variant = self.options.label().map_or(String::new(), |label| format!(" ({label})"));
        let subject = self.entry.profile.name;
        format!("{}{variant} {subject} ×{}", workload.name(), self.threads)
    }

    /// That it has no row.
    fn absence(&self, why: String) -> Absence {
        let (subject, threads) = (self.entry.profile.name, Some(self.threads));
        Absence { subject, threads, why, failed: self.failed }
    }

    /// That there is no sample to show.
    fn moved(&self) -> Absence {
        let (samples, path) = (self.samples.len(), self.entry.profile.path);
        self.absence(format!(
            "the CPUs moved apart or together in each of {samples} samples ({path} path)"
        ))
    }
}

impl Run {
    /// What it will take, before anything is known of its cases.
    #[must_use]
    pub fn guess(&self) -> Duration {
        let cases = self.subjects.len() * self.threads.len() * self.variants.len();
        let cases = u32::try_from(cases).unwrap_or(u32::MAX);
        let rounds = |samples| u32::try_from(samples).unwrap_or(u32::MAX);
        let sampled = match self.duration {
            Some(duration) => duration.max((CALIBRATION / 2) * cases * rounds(LEAST_ROUNDS)),
            None => (CALIBRATION / 2).saturating_mul(cases).saturating_mul(rounds(self.samples)),
        };
        sampled + CALIBRATION * cases
    }

    /// Opens, calibrates, samples and sums up.
    ///
    /// # Panics
    ///
    /// If a thread count is over the size of `pool`.
    pub fn carry_out(&self, pool: &Pool, progress: &mut dyn Progress) -> Outcome {
        let mut outcome = Outcome::default();
        let mut cases = self.open(&mut outcome);
        let start = Instant::now();
        for at in 0..cases.len() {
            if progress.is_over() {
                break;
            }
            let left = self.left(&cases, 0, Duration::ZERO);
            progress.step(start.elapsed(), left, &cases[at].label(self.workload));
            let begin = Instant::now();
            self.calibrate(&mut cases[at], pool, &mut outcome);
            cases[at].calibration = Some(begin.elapsed());
        }
        let sampling = Instant::now();
        let mut round = 0;
        while self.round(&mut cases, round, (start, sampling), (pool, progress), &mut outcome) {
            round += 1;
        }
        for case in cases.iter().filter(|case| !case.failed) {
            let rows = self.rows(case);
            // Of a case that was not sampled before the end there is nothing to say.
            let moved = rows.is_empty() && !case.samples.is_empty();
            outcome.absent.extend(moved.then(|| case.moved()));
            outcome.rows.extend(rows);
        }
        stats::scale(&mut outcome.rows);
        outcome
    }

    /// Samples all cases that want it, and says whether any did.
    fn round(
        &self,
        cases: &mut [Open],
        round: usize,
        (start, sampling): (Instant, Instant),
        (pool, progress): (&Pool, &mut dyn Progress),
        outcome: &mut Outcome,
    ) -> bool {
        let elapsed = sampling.elapsed();
        let mut sampled = false;
        for at in 0..cases.len() {
            if progress.is_over() {
                return false;
            }
            if !self.wants(&cases[at], round, elapsed) {
                continue;
            }
            sampled = true;
            let left = self.left(cases, round, elapsed);
            let case = &mut cases[at];
            progress.step(start.elapsed(), left, &case.label(self.workload));
            let begin = Instant::now();
            match Arc::clone(&case.case).sample(pool, case.reps) {
                Ok(sample) => case.samples.push(sample),
                Err(error) => self.fail(case, &error, outcome),
            }
            case.sampling += begin.elapsed();
        }
        sampled
    }

    /// The time that is expected to be left when `round` rounds are done: what each case has taken
    /// a sample so far, times the samples that it will be asked for. With a duration, that is how
    /// often all cases fit into it, and at least [`LEAST_ROUNDS`] times.
    fn left(&self, cases: &[Open], round: usize, elapsed: Duration) -> Duration {
        let one_round: Duration = cases.iter().map(Open::sample_time).sum();
        let left = cases.iter().map(|case| {
            let rounds = match self.duration {
                Some(duration) => {
                    let left = duration.saturating_sub(elapsed).as_secs_f64();
                    let more = (left / one_round.as_secs_f64().max(1e-9)).ceil() as usize;
                    more.max(LEAST_ROUNDS.saturating_sub(round))
                }
                None => stats::wanted(self.samples, &case.samples).saturating_sub(round),
            };
            let most = self.workload.most_samples(case.options).saturating_sub(round);
            let first = if case.calibration.is_none() { CALIBRATION } else { Duration::ZERO };
            // 2^32 samples of any length would not fit into a duration.
            first + case.sample_time() * u32::try_from(rounds.min(most)).unwrap_or(0)
        });
        left.sum()
    }

    /// Whether a case is sampled in a round.
    fn wants(&self, case: &Open, round: usize, elapsed: Duration) -> bool {
        let asked = match self.duration {
            _ if round >= self.workload.most_samples(case.options) => false,
            Some(duration) => round < LEAST_ROUNDS || elapsed < duration,
            None => round < stats::wanted(self.samples, &case.samples),
        };
        asked && !case.failed
    }

    fn open(&self, outcome: &mut Outcome) -> Vec<Open> {
        let mut cases = Vec::new();
        let variants = self.variants.iter();
        for (&options, entry) in variants.flat_map(|it| self.subjects.iter().map(move |e| (it, e)))
        {
            let subject = entry.profile.name;
            if let Some(why) = entry.objection(self.workload, self.touch, options) {
                let known = outcome.absent.iter().any(|it| it.subject == subject && it.why == why);
                let absence = Absence { subject, threads: None, why, failed: false };
                outcome.absent.extend((!known).then_some(absence));
                continue;
            }
            let fits = |threads: &&usize| self.workload.runs_on(**threads, options);
            for &threads in self.threads.iter().filter(fits) {
                let setup =
                    Setup { memory: self.memory, threads, touch: self.touch, regions: None };
                let spec = Spec { workload: self.workload, setup, seed: self.seed, options };
                match entry.open(&spec) {
                    Ok(case) => cases.push(Open {
                        entry: *entry,
                        threads,
                        options,
                        case,
                        reps: 1,
                        samples: Vec::new(),
                        failed: false,
                        calibration: None,
                        sampling: Duration::ZERO,
                    }),
                    Err(error) => {
                        if let SubjectError::Child(ChildError::Died(death)) = &error {
                            outcome.dead.push(self.dead(&entry.profile, threads, options, death));
                        }
                        let (threads, why) = (Some(threads), error.to_string());
                        outcome.absent.push(Absence { subject, threads, why, failed: true });
                    }
                }
            }
        }
        cases
    }

    fn rows(&self, case: &Open) -> Vec<Row> {
        let profile = &case.entry.profile;
        let work = case.case.lock_work();
        let batches = self.workload == Workload::KbuildMix;
        let counted = |figures: Figures| match &work {
            Some(work) => work.figures(figures, batches),
            None => figures,
        };
        let row = |summary: &stats::Summary| Row {
            distance: summary.distance,
            ns_per_frame: round(summary.ns.0),
            min: round(summary.ns.1),
            max: round(summary.ns.2),
            samples: summary.samples,
            dropped: summary.dropped,
            disturbed: summary.disturbed,
            scattered: summary.scattered,
            round_trip_ns: summary.round_trip_ns.map(round),
            figures: counted(summary.figures),
            hold_frames: work.map(|work| work.holds),
            ..self.row(profile, case.threads, case.options)
        };
        stats::summarise(&case.samples).iter().map(row).collect()
    }

    /// The row of a case whose process ended.
    fn dead(&self, profile: &Profile, threads: usize, options: Options, death: &Death) -> Row {
        Row { died: Some(death.to_string()), ..self.row(profile, threads, options) }
    }

    /// A row without numbers.
    fn row(&self, profile: &Profile, threads: usize, options: Options) -> Row {
        Row {
            workload: self.workload.name(),
            variant: options.label(),
            subject: profile.name,
            group: profile.group,
            path: profile.path,
            threads,
            distance: None,
            ns_per_frame: f64::NAN,
            min: f64::NAN,
            max: f64::NAN,
            samples: 0,
            dropped: 0,
            disturbed: false,
            scattered: false,
            scaling: None,
            unit: self.workload.unit(),
            round_trip_ns: None,
            figures: Figures::default(),
            hold_frames: None,
            memory: self.memory,
            seed: self.seed,
            touch: self.touch && self.workload.touches(),
            note: profile.note,
            died: None,
        }
    }

    fn fail(&self, case: &mut Open, error: &CaseError, outcome: &mut Outcome) {
        case.failed = true;
        if let CaseError::Child(ChildError::Died(death)) = error {
            let mut row = self.dead(&case.entry.profile, case.threads, case.options, death);
            row.dropped = case.samples.len();
            outcome.dead.push(row);
        }
        outcome.absent.push(case.absence(error.to_string()));
    }

    /// Finds the repetitions that fill a sample. Done twice: the first try warms caches and page
    /// tables up and is too slow to go by.
    fn calibrate(&self, case: &mut Open, pool: &Pool, outcome: &mut Outcome) {
        case.reps = 1;
        if self.workload == Workload::StressHighalloc {
            // Every sample opens an arena of its own.
            return;
        }
        for _ in 0..2 {
            match Arc::clone(&case.case).sample(pool, case.reps) {
                Ok(_) if self.workload.is_whole() => return,
                Ok(sample) => {
                    let rep = sample.wall().as_secs_f64() / case.reps as f64;
                    let wanted = SAMPLE.as_secs_f64() / rep.max(1e-9);
                    let least = match case.threads {
                        1 => 1,
                        _ if rep > LONG.as_secs_f64() => LEAST_LONG,
                        _ => LEAST_TOGETHER,
                    };
                    case.reps = (wanted.ceil() as u64).clamp(least, MOST);
                }
                Err(error) => return self.fail(case, &error, outcome),
            }
        }
    }
}

/// To a thousandth: picoseconds are the last digits that can mean anything.
fn round(ns: f64) -> f64 {
    (ns * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{machine, program::Quick, subjects};

    /// Ctrl-C from the beginning.
    struct Over;

    impl Progress for Over {
        fn step(&mut self, _done: Duration, _left: Duration, _what: &str) {}

        fn is_over(&self) -> bool {
            true
        }
    }

    #[test]
    fn of_what_was_not_sampled_nothing_is_said() {
        let run = Run {
            workload: Workload::HotPair,
            variants: vec![Options::default()],
            subjects: subjects::references::<Quick>().into_iter().take(1).collect(),
            threads: vec![1],
            memory: 64 << 20,
            touch: false,
            seed: 1,
            samples: 3,
            duration: None,
        };
        let pool = Pool::new(&machine::cpus().expect("affinity")[..1]).expect("a thread");
        let outcome = run.carry_out(&pool, &mut Over);
        assert!(outcome.rows.is_empty() && outcome.absent.is_empty(), "{:?}", outcome.absent);
    }
}

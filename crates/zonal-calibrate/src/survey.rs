//! The whole survey of a machine: what is measured, in which order, for how long.
//!
//! Everything is sampled in turn, one sample each a round, so that whatever drifts hits all alike.
//!
//! ```
//! use std::time::Duration;
//! use zonal_calibrate::survey::{self, Effort};
//! use zonal_cli::bar::Bar;
//!
//! let effort = Effort { rounds: 1, most: Duration::from_secs(1) };
//! let survey = survey::take(effort, Bar::of_time(true))?;
//! assert!(survey.ledger.figures().all(|(_, figure)| figure.median > 0.0));
//! # Ok::<(), zonal_calibrate::error::CalibrateError>(())
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::alone::{Alone, Set, Sizes};
use super::error::CalibrateError;
use super::quantity::{Figure, Ledger, Quantity, Sample};
use super::together::{self, PairSample, Rates};
#[cfg(test)]
use super::topology::Cpu;
use super::topology::{CPUS, Caches, Hardware, Kinship};
use super::{clock, paging};
use zonal_bench::machine;
use zonal_bench::memory::MachineMemory;
use zonal_bench::rendezvous::Distance;
use zonal_bench::rng::Rng;
use zonal_cli::bar::Bar;
use zonal_cli::interrupt;
use zonal_cli::size::human;

/// Pairs of each kinship that are sampled in a round.
const PAIRS: usize = 8;
/// Up to this many CPUs all pairs are.
const ALL_PAIRS: usize = 8;

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Rounds of samples.
    pub rounds: usize,
    /// No round is begun after this time, but the first.
    pub most: Duration,
}

impl Effort {
    /// Takes up to 25 s.
    pub const FULL: Self = Self { rounds: 151, most: Duration::from_secs(24) };
    /// Takes up to 5 s.
    pub const QUICK: Self = Self { rounds: 21, most: Duration::from_secs(4) };

    /// How long it will take from now on, where `done` rounds took `over`.
    fn left(self, done: usize, over: Duration) -> Duration {
        let most = self.most.saturating_sub(over);
        let to_do = self.rounds.saturating_sub(done);
        let a_round = u32::try_from(done).ok().and_then(|done| over.checked_div(done));
        a_round.map_or(most, |a_round| most.min(a_round * to_do as u32))
    }
}

/// Rounds below which there is no machine file: the median of as many leaves two out that went
/// wrong on either side.
pub const LEAST_ROUNDS: usize = 5;

/// What is known of a pair of CPUs at one distance.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PairFigure {
    /// One of them.
    pub a: usize,
    /// The other.
    pub b: usize,
    /// How they lie.
    pub kinship: Kinship,
    /// Whether they shared a cache, by the round trip.
    pub distance: Distance,
    /// Round trip of a line, in ns.
    pub round_trip: Figure,
    /// A load of a line that the other has written, in ns.
    pub line: Figure,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Survey {
    /// What `/sys` says.
    pub hardware: Hardware,
    /// The CPUs measured on.
    pub allowed: Vec<usize>,
    /// Rounds of samples that there was time for.
    pub rounds: usize,
    /// Rounds that there should have been.
    pub wanted: usize,
    /// Whether Ctrl-C ended it before its time.
    pub interrupted: bool,
    /// CPUs, one of each core, that were busy together for the rates and clocks.
    pub together: Vec<usize>,
    /// Bytes of memory.
    pub memory: u64,
    /// A nominal frequency that the kernel gives, in GHz.
    pub cpufreq_ghz: Option<f64>,
    /// The samples.
    pub ledger: Ledger,
    /// The pairs.
    pub pairs: Vec<PairFigure>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

impl Survey {
    /// Quantities that a machine file rests on and in every sample of which a thread lost its CPU.
    #[must_use]
    pub fn disturbed(&self) -> Vec<Quantity> {
        let have_near = self.ledger.figure(Quantity::NearLine).is_some();
        let rests_on = |quantity| match quantity {
            // A virtual machine's CPUs move: there may be one far sample, taken while they did.
            Quantity::FarLine => self.hardware.sockets() > 1 || !have_near,
            other => other.is_in_file(),
        };
        let figures = self.ledger.figures().filter(|(_, figure)| figure.disturbed);
        figures.map(|(quantity, _)| quantity).filter(|&quantity| rests_on(quantity)).collect()
    }

    /// Whether Ctrl-C left fewer rounds than a machine file can rest on.
    #[must_use]
    pub const fn is_cut_short(&self) -> bool {
        self.interrupted && self.rounds < LEAST_ROUNDS
    }

    /// Whether the machine was quiet enough for what was measured to be its own.
    ///
    /// # Errors
    ///
    /// [`CalibrateError::Busy`] if there were fewer than [`LEAST_ROUNDS`] rounds, or something was
    /// [disturbed](Self::disturbed) in each.
    pub fn check(&self) -> Result<(), CalibrateError> {
        let disturbed = self.disturbed();
        if self.rounds >= LEAST_ROUNDS && disturbed.is_empty() {
            return Ok(());
        }
        let disturbed = disturbed.into_iter().map(Quantity::name).collect();
        Err(CalibrateError::Busy { rounds: self.rounds, wanted: self.wanted, disturbed })
    }
}

/// Measures the machine, on CPUs that this process may use, and shows on `bar`, between rounds, how long that
/// will take. Ctrl-C, if it is
/// [watched](interrupt::watch), ends it after the round that it is in, which is the first at least.
///
/// # Errors
///
/// [`CalibrateError::Thread`], [`CalibrateError::Ended`], [`CalibrateError::Memory`],
/// [`CalibrateError::Advice`].
pub fn take(effort: Effort, bar: Bar) -> Result<Survey, CalibrateError> {
    let failed = |source| CalibrateError::Thread { cpu: 0, source };
    let allowed = machine::cpus().map_err(failed)?;
    let &cpu = allowed.first().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    // A thread of its own, so that the caller's is not left pinned.
    let conductor = thread::Builder::new().spawn(move || {
        machine::pin(cpu).map_err(|source| CalibrateError::Thread { cpu, source })?;
        conduct(effort, allowed, &bar)
    });
    conductor.map_err(failed)?.join().map_err(|_| CalibrateError::Ended)?
}

/// The working sets for some caches with so much memory to use.
fn sizes(caches: &Caches, usable: usize, notes: &mut Vec<String>) -> Sizes {
    const MIB: usize = 1 << 20;
    let kib = |kib: u32| (kib as usize) << 10;
    let (private, shared) = (kib(caches.private_kib), kib(caches.shared_kib));
    let wanted = (4 * shared).clamp(64 * MIB, 1024 * MIB);
    let memory = wanted.min(usable).max(16 * MIB);
    if memory < 2 * shared {
        notes.push(format!(
            "memory was measured in {}, part of which the shared cache of {} holds",
            human(memory as u64),
            human(shared as u64)
        ));
    }
    Sizes {
        inner: kib(caches.inner_kib) / 2,
        private: private / 2,
        // A cycle through four times as much leaves nothing of it in the core's own cache.
        shared: (4 * private).min(shared / 2).max((2 * private).min(3 * (shared / 4))),
        memory,
    }
}

/// Counts of busy cores to measure the clock at: 1, 2, 4, ... and all.
fn busy_counts(cores: usize) -> Vec<usize> {
    let doubled = (0..).map(|shift| 1 << shift).take_while(|&count| count < cores);
    doubled.chain([cores]).collect()
}

fn conduct(effort: Effort, allowed: Vec<usize>, bar: &Bar) -> Result<Survey, CalibrateError> {
    let start = Instant::now();
    let root = Path::new(CPUS);
    let hardware = Hardware::read(root, &allowed);
    let mut notes = hardware.notes.clone();
    let read =
        |source| CalibrateError::Advice { what: "find out how much memory there is", source };
    let memory = MachineMemory::read().map_err(read)?;
    let usable = (memory.available / 8) as usize;
    let sizes = sizes(&hardware.caches, usable, &mut notes);
    let mut alone = Alone::new(sizes)?;
    let apart = |cpu: &&usize| hardware.kinship(allowed[0], **cpu) == Kinship::Apart;
    if let Some(&far) = allowed.iter().find(apart) {
        let sets = together::on(&[far], |_, _| Set::new(sizes.memory, &mut Rng::new(2)))?;
        sets.into_iter().for_each(|set| alone.add_far(set));
    }
    let together = hardware.cores_of_first_socket(&allowed);
    let each = (2 * ((hardware.caches.shared_kib as usize) << 10)).clamp(32 << 20, 256 << 20);
    let rates = Rates::new(&together, each.min(usable / together.len()).max(4 << 20))?;
    let most = if allowed.len() <= ALL_PAIRS { usize::MAX } else { PAIRS };
    let pairs = hardware.pairs(&allowed, most);
    let mut ledger = Ledger::default();
    let mut found = Pairs::default();
    let mut rounds = 0;
    let mut interrupted = false;
    for round in 0..effort.rounds {
        interrupted = round > 0 && interrupt::is_requested();
        if interrupted || (round > 0 && start.elapsed() >= effort.most) {
            let why = if interrupted { "interrupted" } else { "time was up" };
            notes.push(format!("stopped after {round} of {} rounds: {why}", effort.rounds));
            break;
        }
        bar.time(start.elapsed(), effort.left(round, start.elapsed()), "measuring");
        alone.round(&mut ledger);
        paging::round(&mut ledger)?;
        for count in busy_counts(together.len()) {
            together::core_clock(&together[..count], &mut ledger)?;
        }
        rates.round(&mut ledger)?;
        for &(a, b, kinship) in &pairs {
            found.add(a, b, kinship, &together::pair(a, b)?);
        }
        wakes(&hardware, &allowed, &mut ledger)?;
        rounds = round + 1;
    }
    found.pool(hardware.sockets(), &mut ledger);
    let disturbed = ledger.figures().filter(|(_, figure)| figure.disturbed);
    let disturbed: Vec<String> = disturbed.map(|(quantity, _)| quantity.name()).collect();
    if !disturbed.is_empty() {
        let names = disturbed.join(", ");
        notes.push(format!("in every sample of these a thread lost its CPU: {names}"));
    }
    let cpufreq_ghz = clock::cpufreq_ghz(root, allowed[0]);
    let pairs = found.figures();
    let memory = memory.total;
    let wanted = effort.rounds;
    Ok(Survey {
        hardware,
        allowed,
        rounds,
        wanted,
        interrupted,
        together,
        memory,
        cpufreq_ghz,
        ledger,
        pairs,
        notes,
    })
}

fn wakes(
    hardware: &Hardware,
    allowed: &[usize],
    ledger: &mut Ledger,
) -> Result<(), CalibrateError> {
    let here = allowed[0];
    together::wake(Quantity::WakeHere, here, here, ledger)?;
    let other_core = |cpu: &&usize| hardware.kinship(here, **cpu) == Kinship::Socket;
    let other = allowed[1..].iter().find(other_core).or(allowed.get(1));
    other.map_or(Ok(()), |&there| together::wake(Quantity::WakeAcross, here, there, ledger))
}

/// The samples of the pairs, by distance.
#[derive(Debug, Default)]
struct Pairs(BTreeMap<(usize, usize, Distance), (Kinship, Vec<PairSample>)>);

impl Pairs {
    fn add(&mut self, a: usize, b: usize, kinship: Kinship, sample: &PairSample) {
        let entry = self.0.entry((a, b, sample.distance)).or_insert_with(|| (kinship, Vec::new()));
        entry.1.push(*sample);
    }

    /// Adds them to the ledger: as near and far by the sockets if there are several, else by
    /// whether the CPUs shared a cache. (Those of a virtual machine may not, in one socket.)
    fn pool(&self, sockets: usize, ledger: &mut Ledger) {
        for ((_, _, distance), (kinship, samples)) in &self.0 {
            let near = match kinship {
                Kinship::Apart => false,
                Kinship::Sibling | Kinship::Socket => sockets > 1 || *distance == Distance::Near,
            };
            let (trip, line) = match (kinship, near) {
                (Kinship::Sibling, _) => (None, Quantity::SiblingLine),
                (_, true) => (Some(Quantity::NearTrip), Quantity::NearLine),
                (_, false) => (Some(Quantity::FarTrip), Quantity::FarLine),
            };
            for sample in samples {
                let lost_cpu = sample.disturbed;
                ledger.add(line, Sample { value: sample.line, lost_cpu });
                if let Some(trip) = trip {
                    ledger.add(trip, Sample { value: sample.round_trip, lost_cpu });
                }
            }
        }
    }

    fn figures(&self) -> Vec<PairFigure> {
        let figure = |samples: &[PairSample], value: fn(&PairSample) -> f64| {
            let sample = |it: &PairSample| Sample { value: value(it), lost_cpu: it.disturbed };
            Figure::of(&samples.iter().map(sample).collect::<Vec<_>>())
        };
        let pairs = self.0.iter().filter_map(|(&(a, b, distance), (kinship, samples))| {
            let round_trip = figure(samples, |sample| sample.round_trip)?;
            let line = figure(samples, |sample| sample.line)?;
            Some(PairFigure { a, b, kinship: *kinship, distance, round_trip, line })
        });
        pairs.collect()
    }
}

#[cfg(test)]
impl Survey {
    /// Of a machine of `sockets` × `cores` CPUs on which everything of `measured` was measured.
    pub(super) fn of(sockets: usize, cores: usize, measured: &[(Quantity, f64)]) -> Self {
        let cpu = |number| Cpu { number, socket: number / cores, core: number };
        let cpus = (0..sockets * cores).map(cpu).collect();
        let caches = Caches {
            inner_kib: 32,
            private_kib: 1024,
            shared_kib: 8192,
            socket_kib: 16384,
            known: true,
        };
        let mut ledger = Ledger::default();
        for &(quantity, value) in measured {
            ledger.add(quantity, Sample { value, lost_cpu: false });
        }
        Self {
            hardware: Hardware { cpus, threads_per_core: 1, caches, notes: Vec::new() },
            allowed: (0..sockets * cores).collect(),
            rounds: Effort::QUICK.rounds,
            wanted: Effort::QUICK.rounds,
            interrupted: false,
            together: (0..cores).collect(),
            memory: 8 << 30,
            cpufreq_ghz: None,
            ledger,
            pairs: Vec::new(),
            notes: vec!["\"quotes\" and \\ and # stay".into()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caches(inner_kib: u32, private_kib: u32, shared_kib: u32) -> Caches {
        Caches { inner_kib, private_kib, shared_kib, socket_kib: shared_kib, known: true }
    }

    #[test]
    fn working_sets_fit_what_they_are_to_measure() {
        for (inner, private, shared) in [
            (32, 1024, 32768),
            (32, 256, 8192),
            (48, 2048, 107_520),
            (32, 512, 1024),
            (64, 64, 512),
        ] {
            let mut notes = Vec::new();
            let sizes = sizes(&caches(inner, private, shared), 2 << 30, &mut notes);
            assert!(sizes.inner <= (inner as usize) << 10, "{sizes:?}");
            assert!(sizes.private <= (private as usize) << 10, "{sizes:?}");
            assert!(sizes.shared > sizes.private && sizes.shared < (shared as usize) << 10);
            assert!(sizes.memory >= 2 * ((shared as usize) << 10), "{sizes:?}");
            assert!(notes.is_empty(), "{notes:?}");
        }
        let mut notes = Vec::new();
        sizes(&caches(32, 1024, 32768), 1 << 20, &mut notes);
        assert_eq!(notes.len(), 1, "too little memory is told");
    }

    #[test]
    fn the_time_left_is_the_shorter_of_two() {
        let seconds = Duration::from_secs;
        let effort = Effort { rounds: 10, most: seconds(20) };
        assert_eq!(effort.left(0, Duration::ZERO), seconds(20), "nothing is known yet");
        assert_eq!(effort.left(5, seconds(5)), seconds(5), "five more rounds");
        assert_eq!(effort.left(2, seconds(8)), seconds(12), "time will be up");
        assert_eq!(effort.left(3, seconds(30)), Duration::ZERO);
        assert_eq!(effort.left(10, seconds(5)), Duration::ZERO);
    }

    #[test]
    fn clocks_are_measured_at_few_counts_up_to_all() {
        assert_eq!(busy_counts(1), [1]);
        assert_eq!(busy_counts(2), [1, 2]);
        assert_eq!(busy_counts(28), [1, 2, 4, 8, 16, 28]);
    }

    #[test]
    fn only_what_is_in_the_file_can_spoil_it() {
        use Quantity::{CopyCold, FarLine, FarTrip, NearLine};

        let disturbed = |sockets, quantities: &[Quantity]| {
            let mut survey = Survey::of(sockets, 2, &[(Quantity::Lock, 5.0)]);
            for &quantity in quantities {
                survey.ledger.add(quantity, Sample { value: 9.0, lost_cpu: true });
            }
            survey.disturbed()
        };
        assert_eq!(disturbed(1, &[]), []);
        assert_eq!(disturbed(1, &[CopyCold, FarTrip]), []);
        assert_eq!(disturbed(1, &[FarLine]), [FarLine], "it stands for near ones");
        assert_eq!(disturbed(1, &[NearLine, FarLine]), [NearLine]);
        assert_eq!(disturbed(2, &[NearLine, FarLine]), [NearLine, FarLine]);
        assert_eq!(disturbed(1, &[Quantity::Lock]), [], "one sample was not");
    }

    #[test]
    fn pairs_are_pooled_by_socket_or_by_distance() {
        let sample = |ns: f64| PairSample {
            round_trip: ns,
            line: ns / 3.0,
            distance: Distance::of(ns),
            disturbed: false,
        };
        let mut pairs = Pairs::default();
        pairs.add(0, 1, Kinship::Socket, &sample(90.0));
        pairs.add(0, 1, Kinship::Socket, &sample(390.0));
        let pooled = |pairs: &Pairs, sockets, quantity| {
            let mut ledger = Ledger::default();
            pairs.pool(sockets, &mut ledger);
            ledger.figure(quantity).map(|figure| (figure.median, figure.samples))
        };
        assert_eq!(pooled(&pairs, 1, Quantity::NearLine), Some((30.0, 1)));
        assert_eq!(pooled(&pairs, 1, Quantity::FarLine), Some((130.0, 1)));
        assert_eq!(pairs.figures().len(), 2, "a row for each distance");
        pairs.add(0, 2, Kinship::Apart, &sample(300.0));
        pairs.add(0, 3, Kinship::Sibling, &sample(30.0));
        assert_eq!(pooled(&pairs, 2, Quantity::NearLine), Some((80.0, 2)));
        assert_eq!(pooled(&pairs, 2, Quantity::FarLine), Some((100.0, 1)));
        assert_eq!(pooled(&pairs, 2, Quantity::SiblingLine), Some((10.0, 1)));
    }
}

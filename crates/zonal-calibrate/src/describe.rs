//! From what was measured to a machine file.
//!
//! Each value is measured, derived from measured ones, described by the system, or, if user space
//! cannot see it, taken from the built-in machine [`REFERENCE`]; a comment beside it says which.
//!
//! ```
//! use zonal_calibrate::describe::describe;
//! use zonal_calibrate::survey::{self, Effort};
//! use zonal_cli::bar::Bar;
//! use zonal_sim::machine::Machine;
//!
//! let effort = Effort { rounds: 1, most: core::time::Duration::from_secs(1) };
//! let survey = survey::take(effort, Bar::of_time(true))?;
//! let description = describe(&survey, "my_machine")?;
//! let text = description.to_toml()?;
//! assert_eq!(Machine::parse(&text, "my_machine.toml")?, description.machine);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs;

use zonal_sim::machine::{Machine, Topology, builtin};

use super::draft::Draft;
use super::error::CalibrateError;
use super::quantity::Quantity;
use super::survey::Survey;

/// The built-in machine whose values stand for what cannot be measured.
pub const REFERENCE: &str = "skylake_2s_112cpu";

/// Where a value is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Measured here.
    Measured,
    /// Described by the system.
    Described,
    /// Not to be measured here: taken from [`REFERENCE`].
    Default,
}

/// A value of the machine file and where it is from.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Field {
    /// The table it is in.
    pub table: &'static str,
    /// Its key there.
    pub key: &'static str,
    /// Where it is from.
    pub origin: Origin,
    /// What to know about it.
    pub remark: String,
}

/// A machine with remarks on its values.
#[derive(Clone, Debug)]
pub struct Description {
    /// The machine.
    pub machine: Machine,
    /// Where each value is from, in the order of the file.
    pub fields: Vec<Field>,
}

impl Description {
    /// The machine file, with a comment behind each value.
    ///
    /// # Errors
    ///
    /// [`CalibrateError::Refused`] if the simulator would not read the same machine from it.
    pub fn to_toml(&self) -> Result<String, CalibrateError> {
        let refused = |error: &dyn core::fmt::Display| CalibrateError::Refused(error.to_string());
        let plain = self.machine.to_toml().map_err(|error| refused(&error))?;
        let mut table = "";
        let mut text = String::with_capacity(2 * plain.len());
        for line in plain.lines() {
            text.push_str(line);
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                table = name;
            }
            let key = line.split(" = ").next().unwrap_or("");
            // Nothing before the first table has a remark: a text may go over several lines there.
            if let Some(field) = self.fields.iter().find(|it| it.table == table && it.key == key) {
                text.push_str(" # ");
                text.push_str(&field.remark);
            }
            text.push('\n');
        }
        match Machine::parse(&text, &self.machine.name) {
            Ok(read) if read == self.machine => Ok(text),
            Ok(_) => Err(refused(&"its comments change what it says")),
            Err(error) => Err(refused(&error)),
        }
    }
}

/// Makes a machine called `name` of a survey.
///
/// # Errors
///
/// [`CalibrateError::Senseless`] if a frequency or a latency that everything rests on is missing,
/// [`CalibrateError::NoReference`], [`CalibrateError::Refused`] if the simulator does not take it.
pub fn describe(survey: &Survey, name: &str) -> Result<Description, CalibrateError> {
    let reference = builtin(REFERENCE).ok_or(CalibrateError::NoReference { name: REFERENCE })?;
    let core_ghz = survey.ledger.figure(Quantity::Core(1)).map(|figure| figure.median);
    let core_ghz = sensible("the clock of a core", core_ghz)?;
    let mut draft =
        Draft { survey, reference, core_ghz, nominal_ghz: core_ghz, fields: Vec::new() };
    let topology = draft.topology();
    let clock = draft.clock(topology.cores_per_socket)?;
    let cache = draft.cache();
    let cost = draft.cost(topology.sockets)?;
    let kernel = draft.kernel(topology.cpus());
    let machine = Machine {
        name: name.to_owned(),
        title: title(&topology),
        source: draft.source(),
        topology,
        clock,
        cache,
        cost,
        kernel,
    };
    machine.check().map_err(|violation| CalibrateError::Refused(violation.to_string()))?;
    Ok(Description { machine, fields: draft.fields })
}

/// A number that everything rests on.
pub(super) fn sensible(what: &str, value: Option<f64>) -> Result<f64, CalibrateError> {
    let value = value.unwrap_or(f64::NAN);
    let sensible = value.is_finite() && value > 0.0;
    sensible.then_some(value).ok_or_else(|| CalibrateError::Senseless { what: what.into(), value })
}

fn title(topology: &Topology) -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':')).map_or("", |(_, model)| model.trim());
    let model = if model.is_empty() { "unknown processor" } else { model };
    let Topology { sockets, memory_gib, .. } = *topology;
    let plural = if sockets == 1 { "" } else { "s" };
    format!("{model}: {sockets} socket{plural}, {} CPUs, {memory_gib} GiB", topology.cpus())
}

/// The least without which there is no machine.
#[cfg(test)]
pub(super) const LEAST: [(Quantity, f64); 3] =
    [(Quantity::Core(1), 4.0), (Quantity::Inner, 1.0), (Quantity::Private, 3.0)];

#[cfg(test)]
mod tests {
    use super::*;

    fn with(more: &[(Quantity, f64)]) -> Vec<(Quantity, f64)> {
        LEAST.into_iter().chain(more.iter().copied()).collect()
    }

    fn origin(description: &Description, key: &str) -> Origin {
        description.fields.iter().find(|field| field.key == key).expect("each has one").origin
    }

    fn is(value: f64, wanted: f64) -> bool {
        (value - wanted).abs() < 0.06
    }

    #[test]
    fn times_away_from_the_core_are_in_nominal_cycles_and_others_in_its_own() {
        let measured = with(&[
            (Quantity::Tsc, 2.0),
            (Quantity::Core(2), 3.0),
            (Quantity::NearLine, 30.0),
            (Quantity::FarLine, 100.0),
            (Quantity::Memory, 80.0),
            (Quantity::MemoryFar, 140.0),
            (Quantity::Locked, 5.0),
            (Quantity::Lock, 7.0),
            (Quantity::ReadLock, 16.0),
            (Quantity::WakeAcross, 1000.0),
            (Quantity::ReadFault, 500.0),
            (Quantity::ClearRate, 20.0),
            (Quantity::CopyRate, 15.0),
        ]);
        let description = describe(&Survey::of(2, 2, &measured), "two").expect("a machine");
        let machine = &description.machine;
        assert_eq!((machine.topology.sockets, machine.topology.cores_per_socket), (2, 2));
        assert_eq!(
            (machine.clock.nominal_ghz, &machine.clock.turbo_ghz[..]),
            (2.0, &[4.0, 3.0][..])
        );
        let cost = machine.cost;
        assert!(is(cost.near, 60.0) && is(cost.far, 200.0), "{cost:?}");
        assert!(is(cost.memory, 160.0) && is(cost.memory_far, 280.0), "{cost:?}");
        assert!(is(cost.locked, 16.0), "less the load, at 4 GHz: {cost:?}");
        assert!(is(cost.lock, 8.0), "less the locked add, at 4 GHz: {cost:?}");
        assert!(is(machine.kernel.space_lock, 12.0), "a half less it: {:?}", machine.kernel);
        assert!(is(machine.kernel.wake, 2000.0), "nominal: {:?}", machine.kernel);
        assert!(is(cost.private, 5.2), "mostly the innermost: {cost:?}");
        assert!(is(cost.bandwidth_gib_s, 30.0), "a copy reads and writes: {cost:?}");
        assert!(is(machine.kernel.fault, 2000.0));
        assert_eq!(machine.cache.shared_kib, 16384);
        assert_eq!(origin(&description, "far"), Origin::Measured);
        assert_eq!(origin(&description, "irq_toggle"), Origin::Default);
        assert_eq!(origin(&description, "cores_per_socket"), Origin::Described);
    }

    #[test]
    fn what_was_not_measured_is_a_default_and_says_so() {
        let description = describe(&Survey::of(1, 1, &LEAST), "one").expect("a machine");
        let machine = &description.machine;
        assert_eq!(machine.clock.nominal_ghz, 4.0, "no counter, no cpufreq: the core's");
        for key in ["near", "far", "shared", "memory", "locked", "fault", "wake", "tlb_flush"] {
            assert_eq!(origin(&description, key), Origin::Default, "{key}");
        }
        let reference = builtin(REFERENCE).expect("built in");
        assert_eq!(machine.kernel.lru_add, reference.kernel.lru_add);
        assert_eq!(machine.kernel.lru_batch, reference.kernel.lru_batch);
    }

    #[test]
    fn tasks_drift_apart_where_there_are_few() {
        let spread = |sockets, cores| {
            let description = describe(&Survey::of(sockets, cores, &LEAST), "box");
            let description = description.expect("a machine");
            assert_eq!(origin(&description, "spread"), Origin::Default);
            description.machine.kernel.spread
        };
        assert_eq!((spread(1, 1), spread(1, 2), spread(2, 20)), (1.0, 1.0, 1.0));
        assert_eq!((spread(1, 41), spread(2, 56)), (0.0, 0.0), "as on the reference");
        for name in ["xeon_vm_2cpu", "desktop_8cpu_4g", "broadwell_2s_40cpu", REFERENCE] {
            let machine = builtin(name).expect("built in");
            let cores = usize::from(machine.topology.cores_per_socket);
            let threads = usize::from(machine.topology.threads_per_core);
            let alike = spread(machine.topology.sockets.into(), cores * threads);
            assert_eq!(machine.kernel.spread, alike, "{name}");
        }
    }

    #[test]
    fn in_one_socket_far_is_told_from_near_by_the_round_trip() {
        let far = [(Quantity::FarLine, 120.0)];
        let only_far = describe(&Survey::of(1, 2, &with(&far)), "box").expect("a machine");
        assert!(is(only_far.machine.cost.near, 480.0), "there was nothing nearer");
        assert_eq!(origin(&only_far, "far"), Origin::Default);
        let both = [(Quantity::NearLine, 30.0), (Quantity::FarLine, 120.0)];
        let both = describe(&Survey::of(1, 2, &with(&both)), "box").expect("a machine");
        assert!(is(both.machine.cost.near, 120.0) && is(both.machine.cost.far, 480.0));
    }

    #[test]
    fn cpus_of_one_core_tell_nothing_of_lines_between_cores() {
        let near = |more: &[(Quantity, f64)]| {
            let described = describe(&Survey::of(1, 2, &with(more)), "box").expect("a machine");
            (described.machine.cost.near, origin(&described, "near"))
        };
        // A line of the whole private cache takes 3 ns.
        let (cycles, from) = near(&[(Quantity::NearLine, 2.9)]);
        assert!(from == Origin::Default && cycles > 12.0, "{cycles}");
        let (cycles, from) = near(&[(Quantity::NearLine, 3.1)]);
        assert!(from == Origin::Measured && is(cycles, 12.4), "{cycles}");
        let (cycles, from) = near(&[(Quantity::NearLine, 2.9), (Quantity::FarLine, 120.0)]);
        assert!(
            from == Origin::Measured && is(cycles, 480.0),
            "they were apart at times: {cycles}"
        );
    }

    #[test]
    fn differences_that_come_out_negative_are_not_told() {
        let less =
            with(&[(Quantity::Locked, 0.5), (Quantity::DropOne, 50.0), (Quantity::DropNone, 60.0)]);
        let description = describe(&Survey::of(1, 1, &less), "noisy").expect("a machine");
        assert_eq!(origin(&description, "locked"), Origin::Default);
        assert_eq!(origin(&description, "tlb_flush"), Origin::Default);
    }

    #[test]
    fn locks_that_cost_no_more_than_an_addition_are_measured_to_cost_the_least() {
        let locks = [(Quantity::Lock, 4.9), (Quantity::ReadLock, 9.8)];
        let cheap = with(&[&locks[..], &[(Quantity::Locked, 5.0)]].concat());
        let description = describe(&Survey::of(1, 1, &cheap), "cheap").expect("a machine");
        let machine = &description.machine;
        assert_eq!((machine.cost.lock, machine.kernel.space_lock), (0.1, 0.1));
        for key in ["lock", "space_lock"] {
            assert_eq!(origin(&description, key), Origin::Measured, "{key}");
        }
        // Without the addition it is not known what is left.
        let lock = [(Quantity::Lock, 0.9), (Quantity::ReadLock, 1.9)];
        let unknown = describe(&Survey::of(1, 1, &with(&lock)), "unknown").expect("a machine");
        for key in ["lock", "space_lock"] {
            assert_eq!(origin(&unknown, key), Origin::Default, "{key}");
        }
    }

    #[test]
    fn more_than_a_file_can_say_is_cut_and_told() {
        let description = describe(&Survey::of(2, 96, &LEAST), "big").expect("a machine");
        assert_eq!(description.machine.topology.cores(), 128);
        let cores = description.fields.iter().find(|field| field.key == "cores_per_socket");
        assert!(cores.is_some_and(|field| field.remark.contains("96")), "{cores:?}");
        assert!(describe(&Survey::of(16, 4, &LEAST), "bigger").is_ok());
    }

    #[test]
    fn nothing_sensible_is_an_error() {
        for (at, value) in [(0, 0.0), (0, f64::NAN), (1, -1.0), (2, 0.0)] {
            let mut measured = LEAST;
            measured[at].1 = value;
            let error = describe(&Survey::of(1, 1, &measured), "bad").expect_err("nonsense");
            assert!(matches!(error, CalibrateError::Senseless { .. }), "{error}");
        }
        let error = describe(&Survey::of(1, 1, &LEAST), "No Name").expect_err("no name");
        assert!(matches!(error, CalibrateError::Refused(_)), "{error}");
    }

    #[test]
    fn every_value_has_a_comment_and_the_file_reads_back() {
        let description = describe(&Survey::of(2, 4, &LEAST), "box").expect("a machine");
        let text = description.to_toml().expect("a file");
        assert_eq!(Machine::parse(&text, "box.toml"), Ok(description.machine.clone()));
        let tables = &text[text.find("\n[").expect("tables")..];
        let values = tables.lines().filter(|line| line.contains(" = "));
        assert_eq!(values.clone().count(), description.fields.len());
        for line in values {
            assert!(line.contains(" # "), "{line}");
        }
    }
}

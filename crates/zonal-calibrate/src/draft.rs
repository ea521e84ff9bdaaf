//! A machine in the making: what is said of each value, and the parts that are read off.

use zonal_sim::machine::{Cache, Clock, MAX_CORES, MAX_SOCKETS, Machine, Topology};

use super::describe::{Field, Origin, REFERENCE, sensible};
use super::error::CalibrateError;
use super::quantity::{Figure, Quantity};
use super::survey::Survey;

/// Which clock a time is counted in.
#[derive(Clone, Copy)]
pub(super) enum Ticking {
    /// The core's: the simulator lets it follow the turbo.
    Core,
    /// The nominal one.
    Nominal,
}

/// A machine in the making.
pub(super) struct Draft<'a> {
    pub(super) survey: &'a Survey,
    pub(super) reference: Machine,
    pub(super) core_ghz: f64,
    pub(super) nominal_ghz: f64,
    pub(super) fields: Vec<Field>,
}

/// To the tenth, and not to nothing.
pub(super) fn rounded(cycles: f64) -> f64 {
    (cycles * 10.0).round().max(1.0) / 10.0
}

fn ghz(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn spread(figure: &Figure) -> String {
    let Figure { median, min, max, .. } = figure;
    let lost = if figure.disturbed { ", all disturbed" } else { "" };
    format!("{median:.1} ns ({min:.1} to {max:.1}{lost})")
}

impl Draft<'_> {
    pub(super) fn figure(&self, quantity: Quantity) -> Option<Figure> {
        self.survey.ledger.figure(quantity)
    }

    /// What to say beside a value if one that it rests on was never measured undisturbed.
    pub(super) fn lost(&self, of: &[Quantity]) -> &'static str {
        let disturbed = |&it: &Quantity| self.figure(it).is_some_and(|figure| figure.disturbed);
        if of.iter().any(disturbed) { "; all disturbed" } else { "" }
    }

    pub(super) fn median(&self, quantity: Quantity) -> Option<f64> {
        Some(self.figure(quantity)?.median)
    }

    pub(super) fn say(
        &mut self,
        table: &'static str,
        key: &'static str,
        origin: Origin,
        remark: String,
    ) {
        let remark = match origin {
            Origin::Measured => format!("measured: {remark}"),
            Origin::Described => remark,
            Origin::Default => format!("default: {remark}"),
        };
        self.fields.push(Field { table, key, origin, remark });
    }

    /// Cycles of a time that was measured, less what is charged elsewhere; `None` if nothing is
    /// left of it.
    pub(super) fn cycles(&self, quantity: Quantity, less_ns: f64, ticking: Ticking) -> Option<f64> {
        let ghz = match ticking {
            Ticking::Core => self.core_ghz,
            Ticking::Nominal => self.nominal_ghz,
        };
        let ns = self.median(quantity)? - less_ns;
        (ns.is_finite() && ns > 0.0).then(|| rounded(ns * ghz))
    }

    /// A value that is one quantity less what is charged elsewhere, or else the default.
    pub(super) fn value(
        &mut self,
        (table, key): (&'static str, &'static str),
        (quantity, ticking): (Quantity, Ticking),
        (less_ns, what): (f64, &str),
        default: f64,
    ) -> f64 {
        if let Some(value) = self.cycles(quantity, less_ns, ticking) {
            let shown = self.figure(quantity).map_or(String::new(), |figure| spread(&figure));
            self.say(table, key, Origin::Measured, format!("{what}, {shown}"));
            return value;
        }
        self.default((table, key), &format!("{what} could not be told here"), default)
    }

    /// A value that is what one quantity takes beside a locked addition, which may be next to nothing: then it is the
    /// least that there is, and not that of a machine where it is more.
    pub(super) fn beside_update(
        &mut self,
        (table, key): (&'static str, &'static str),
        (quantity, less_ns): (Quantity, f64),
        what: &str,
        default: f64,
    ) -> f64 {
        let update = self.figure(Quantity::Locked);
        if let (Some(figure), Some(_)) = (self.figure(quantity), update)
            && figure.median <= less_ns
        {
            let remark = format!("{what}, {}: nothing is left", spread(&figure));
            self.say(table, key, Origin::Measured, remark);
            return rounded(0.0);
        }
        self.value((table, key), (quantity, Ticking::Core), (less_ns, what), default)
    }

    pub(super) fn default(
        &mut self,
        (table, key): (&'static str, &'static str),
        why: &str,
        value: f64,
    ) -> f64 {
        self.say(table, key, Origin::Default, format!("as on {REFERENCE}; {why}"));
        value
    }

    pub(super) fn topology(&mut self) -> Topology {
        let hardware = &self.survey.hardware;
        let (sockets, cores) = (hardware.sockets(), hardware.cores_per_socket());
        let threads = hardware.threads_per_core;
        let said = |there: usize, taken: u16| {
            if there == usize::from(taken) {
                "as /sys says".to_owned()
            } else {
                format!("there are {there}, which is more than a machine file can say")
            }
        };
        let clamp = |there: usize, most: u32| there.clamp(1, most as usize) as u16;
        let taken_sockets = clamp(sockets, MAX_SOCKETS.into());
        let taken_cores = clamp(cores, MAX_CORES / u32::from(taken_sockets));
        let taken_threads = clamp(threads, 2);
        let remarks = [
            ("sockets", said(sockets, taken_sockets)),
            ("cores_per_socket", said(cores, taken_cores)),
            ("threads_per_core", said(threads, taken_threads)),
            ("memory_gib", "what the kernel and the control group leave".into()),
        ];
        for (key, remark) in remarks {
            self.say("topology", key, Origin::Described, remark);
        }
        let gib = self.survey.memory as f64 / f64::from(1 << 30);
        Topology {
            sockets: taken_sockets,
            cores_per_socket: taken_cores,
            threads_per_core: taken_threads,
            memory_gib: (gib * 10.0).round().max(1.0) / 10.0,
        }
    }

    pub(super) fn clock(&mut self, cores: u16) -> Result<Clock, CalibrateError> {
        let tsc = self.figure(Quantity::Tsc);
        let (nominal, origin, remark) = match (tsc, self.survey.cpufreq_ghz) {
            (Some(tsc), _) => (tsc.median, Origin::Measured, "the time-stamp counter"),
            (None, Some(ghz)) => (ghz, Origin::Described, "as cpufreq says"),
            (None, None) => (self.core_ghz, Origin::Measured, "the clock of a core, alone"),
        };
        self.nominal_ghz = ghz(sensible("the nominal frequency", Some(nominal))?);
        let lost = self.lost(&[Quantity::Tsc]);
        self.say("clock", "nominal_ghz", origin, format!("{remark}{lost}"));
        let turbo_ghz = self.turbo(usize::from(cores));
        let measured = self.survey.together.len();
        let beyond = if measured < usize::from(cores) { "; the last for all further" } else { "" };
        let counts: Vec<_> = (1..=measured).map(|busy| Quantity::Core(busy as u16)).collect();
        let lost = if self.lost(&counts).is_empty() { "" } else { "; some all disturbed" };
        let remark = format!("a chain of additions, 1 to {measured} cores busy{beyond}{lost}");
        self.say("clock", "turbo_ghz", Origin::Measured, remark);
        let share = self.reference.clock.sibling_share;
        let sibling_share = self.default(("clock", "sibling_share"), "depends on the work", share);
        Ok(Clock { nominal_ghz: self.nominal_ghz, turbo_ghz, sibling_share })
    }

    /// The clock at each count of busy cores: on straight lines between those measured, and never
    /// higher than with fewer.
    fn turbo(&self, cores: usize) -> Vec<f64> {
        let clock = |count: usize| self.median(Quantity::Core(count as u16));
        let last = self.survey.together.len().min(cores).max(1);
        let known: Vec<(usize, f64)> =
            (1..=last).filter_map(|count| Some((count, clock(count)?))).collect();
        let mut highest = f64::INFINITY;
        let at = |count: usize| {
            let below = known.iter().rev().find(|it| it.0 <= count);
            let above = known.iter().find(|it| it.0 >= count);
            let (below, above) = (below.or(above)?, above.or(below)?);
            let part = (count - below.0) as f64 / (above.0 - below.0).max(1) as f64;
            Some(below.1 + part * (above.1 - below.1))
        };
        (1..=last)
            .map(|count| {
                highest = at(count).unwrap_or(self.core_ghz).min(highest);
                ghz(highest)
            })
            .collect()
    }

    pub(super) fn cache(&mut self) -> Cache {
        let caches = self.survey.hardware.caches;
        let (origin, remark) = if caches.known {
            (Origin::Described, "as /sys says")
        } else {
            (Origin::Default, "that of a common server; /sys does not say")
        };
        self.say("cache", "private_kib", origin, remark.into());
        self.say("cache", "shared_kib", origin, remark.into());
        let bytes = self.reference.cache.struct_page_bytes;
        let remark = "struct page of a 64-bit Linux".to_owned();
        self.say("cache", "struct_page_bytes", Origin::Default, remark);
        Cache {
            private_kib: caches.private_kib,
            shared_kib: caches.socket_kib,
            struct_page_bytes: bytes,
        }
    }

    pub(super) fn source(&self) -> String {
        let keys = |origin| {
            let of = self.fields.iter().filter(|field| field.origin == origin);
            of.map(|field| field.key).collect::<Vec<_>>().join(", ")
        };
        let cpus: Vec<String> = self.survey.allowed.iter().map(ToString::to_string).collect();
        let mut text = format!(
            "Measured by `zonal calibrate` {} on the CPUs {}: {}.\n\
             Described by the system: {}.\n\
             Defaults, not of this machine: {}.\n\
             Cycles are ns times nominal_ghz for what is away from the core, and times the clock \
             of a core that is busy alone for what is not: the simulator lets that follow the \
             turbo.\n",
            env!("CARGO_PKG_VERSION"),
            cpus.join(", "),
            keys(Origin::Measured),
            keys(Origin::Described),
            keys(Origin::Default),
        );
        for note in &self.survey.notes {
            text.push_str(&format!("Note: {note}.\n"));
        }
        text
    }
}

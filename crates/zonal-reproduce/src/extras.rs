//! Runs beyond the published rows: zonal's own preset on the machines of the sources.
//!
//! ```
//! use zonal_reproduce::extras::LABELS;
//!
//! assert!(LABELS.iter().any(|(preset, _)| preset.name() == "Zonal"));
//! ```

use zonal_sim::run::{LruLock, Preset, Workload};

use super::Only;
use super::facts::{BROADWELL_MACHINE, Table};
use super::plan::{Key, Planner, QUICK_TASKS};

/// The machine that shows where cycles go.
pub const CYCLES_MACHINE: &str = "skylake_2s_112cpu";

/// Presets and what they are called in charts.
pub const LABELS: [(Preset, &str); 7] = [
    (Preset::Linux416, "base"),
    (Preset::SkipMerge, "skip_merge"),
    (Preset::Cluster, "cluster"),
    (Preset::ClusterFree, "cluster_free"),
    (Preset::HugeBatch, "huge pcp batch"),
    (Preset::SplitZones, "four zone instances"),
    (Preset::Zonal, "Zonal"),
];

/// Machines on which it is shown what `Zonal` waits for, the workload of the table whose rows ask for
/// it, and the numbers of tasks.
const SCALES: [(&str, &str, &[u32]); 2] = [
    (CYCLES_MACHINE, "page_fault1_processes_full", &[1, 7, 14, 28, 56, 112]),
    ("intel_2s_224cpu", "page_fault1_16_processes", &[1, 14, 28, 56, 112, 224]),
];

/// Keys of runs that no row asks for. A machine that is not built in has none.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// `page_fault1` on all CPUs of [`CYCLES_MACHINE`], by preset, and at last `Zonal` with the
    /// split LRU lock.
    pub cycles: Vec<(String, Key)>,
    /// What no lock at all allows there: the same with no LRU lock, under `Zonal` and under the
    /// preset that never enters the zone.
    pub unlocked: Vec<Key>,
    /// `Zonal` with the split LRU lock there.
    pub split_lru: Option<Key>,
    /// `Zonal` and what it waits for, by where: on all CPUs, or on some numbers of them.
    pub waits: Vec<(String, Vec<Key>)>,
    /// `Zonal` in the THP mix.
    pub thp_mix: Option<Key>,
    /// `Zonal` asking for huge pages in memory full of page cache: the workload of the table, run.
    pub highalloc: Vec<(&'static str, Key)>,
    /// `Zonal` on 1 to 40 CPUs: the workload of the table, tasks, run.
    pub curves: Vec<(&'static str, u32, Key)>,
}

impl Extras {
    /// The runs for what `only` leaves.
    #[must_use]
    pub fn new(planner: &Planner, only: &Only, quick: bool) -> Self {
        let mut extras = Self::default();
        extras.add_cycles(planner, only);
        extras.add_waits(planner, only, quick);
        if only.takes(Table::ZoneLock.name(), "skylake_2s_112cpu_64g", "thp_mix_56_order0_56_thp") {
            extras.thp_mix = planner.key("skylake_2s_112cpu_64g", Workload::ThpMix, Preset::Zonal);
        }
        if !quick {
            extras.add_highalloc(planner, only);
        }
        let modes = [
            ("page_fault1_processes", Workload::PageFault1),
            ("page_fault1_threads", Workload::PageFault1Threads),
        ];
        for (name, workload) in modes {
            let Some(key) = planner.key(BROADWELL_MACHINE, workload, Preset::Zonal) else {
                continue;
            };
            if only.takes(Table::Broadwell.name(), BROADWELL_MACHINE, name) {
                let counts = (1..=40).filter(|tasks| !quick || QUICK_TASKS.contains(tasks));
                extras.curves.extend(counts.map(|tasks| {
                    let mut key = key.clone();
                    key.spec.tasks = tasks;
                    (name, tasks, key)
                }));
            }
        }
        extras
    }

    fn add_cycles(&mut self, planner: &Planner, only: &Only) {
        if !only.takes(Table::ZoneLock.name(), CYCLES_MACHINE, "page_fault1_processes_full") {
            return;
        }
        let with = |preset: Preset, lru: LruLock| {
            let mut key = planner.key(CYCLES_MACHINE, Workload::PageFault1, preset)?;
            key.spec.lru = lru;
            Some(key)
        };
        self.cycles = LABELS
            .iter()
            .filter_map(|(preset, label)| Some(((*label).into(), with(*preset, LruLock::Node)?)))
            .collect();
        self.split_lru = with(Preset::Zonal, LruLock::Split);
        let split = self.split_lru.clone();
        self.cycles.extend(split.map(|key| ("Zonal, split LRU lock".into(), key)));
        let presets = [Preset::Zonal, Preset::HugeBatch];
        self.unlocked =
            presets.into_iter().filter_map(|preset| with(preset, LruLock::None)).collect();
    }

    fn add_waits(&mut self, planner: &Planner, only: &Only, quick: bool) {
        let zone_lock = Table::ZoneLock.name();
        for (machine, published, counts) in SCALES {
            if !only.takes(zone_lock, machine, published) {
                continue;
            }
            let Some(key) = planner.key(machine, Workload::PageFault1, Preset::Zonal) else {
                continue;
            };
            let all = key.spec.tasks;
            let locks =
                [(LruLock::Node, "node"), (LruLock::Split, "split"), (LruLock::None, "none")];
            for (lru, name) in locks {
                let counts = counts.iter().filter(|tasks| !quick || **tasks == all);
                let with = |tasks: &u32| {
                    let mut key = key.clone();
                    (key.spec.lru, key.spec.tasks) = (lru, *tasks);
                    key
                };
                let place = format!("page_fault1 on 1 to {all} CPUs, LRU lock: {name}");
                self.waits.push((place, counts.map(with).collect()));
            }
        }
        let places = [
            ("intel_2s_224cpu", "kbuild_j224", Workload::Kbuild, "kbuild on 224 CPUs"),
            (
                "skylake_4s_768g",
                "parallel_free_512g",
                Workload::ParallelFree,
                "parallel free of 512 GB",
            ),
        ];
        for (machine, published, workload, place) in places {
            if only.takes(zone_lock, machine, published) {
                let key = planner.key(machine, workload, Preset::Zonal);
                self.waits.extend(key.map(|key| (place.to_owned(), vec![key])));
            }
        }
    }

    fn add_highalloc(&mut self, planner: &Planner, only: &Only) {
        let machine = "desktop_8cpu_4g";
        for published in ["stress_highalloc_delay_100ms", "stress_highalloc_delay_1ms"] {
            if only.takes(Table::ZoneLock.name(), machine, published) {
                let key = planner.key_of(machine, published, Preset::Zonal);
                self.highalloc.extend(key.map(|key| (published, key)));
            }
        }
    }

    /// All of the runs.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let cycles = self.cycles.iter().map(|(_, key)| key);
        let waits = self.waits.iter().flat_map(|(_, keys)| keys);
        let curves = self.curves.iter().map(|(_, _, key)| key);
        let highalloc = self.highalloc.iter().map(|(_, key)| key);
        let single = self.split_lru.iter().chain(&self.thp_mix);
        let zonal = waits.chain(single).chain(highalloc).chain(curves);
        cycles.chain(&self.unlocked).chain(zonal).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts;
    use super::super::plan::Choice;
    use super::*;
    use zonal_simulate::runs::{Runner, Simulator};

    #[test]
    fn every_run_fits_its_machine() {
        let facts = facts::all();
        for quick in [false, true] {
            let planner = Planner::new(&Simulator, &facts, Choice { seed: 1, quick });
            let extras = Extras::new(&planner, &Only::default(), quick);
            let published = facts.iter().filter_map(|fact| Some(planner.measure(fact).ok()?.key));
            let keys: Vec<Key> = published.chain(extras.keys()).collect();
            assert!(keys.len() > 100, "{}", keys.len());
            for key in keys {
                let machine = planner.machine(&key.machine).expect("it is built in");
                assert_eq!(Simulator.check(machine, &key.spec), Ok(()), "{key:?}");
            }
        }
    }
}

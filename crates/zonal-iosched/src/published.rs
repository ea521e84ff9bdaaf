//! What was published of sequential readers, beside what is simulated: the change that the longer
//! target latency makes. Of a disk only the rate of one reader on an unpatched kernel was fitted; all
//! changes are predicted.
//!
//! ```
//! use zonal_iosched::published::{Machine, mib_s};
//!
//! let machine = Machine::of_disk("desktop_2014").expect("it is that machine's");
//! assert_eq!(mib_s(machine, 4, "cfq600"), Some(99.71));
//! assert_eq!(Machine::of_disk("sata_ssd"), None);
//! ```

/// Rows `machine,stat,operation,threads,kernel,mb_per_s` of mean sequential reads.
const ROWS: &str = include_str!("../data/tiobench_seqread.csv");

/// The kernel without patches whose CFQ this is, with a target of 300 ms.
pub const BASE: &str = "3.16-rc1";
/// The same with 600 ms.
pub const PATCHED: &str = "cfq600";

/// A machine of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine(&'static str);

/// Machines and the disks that stand for theirs.
const MACHINES: [(&str, &str); 4] = [
    ("desktop_2xRAM_ext3", "desktop_2014"),
    ("better_desktop", "better_desktop_2014"),
    ("laptop", "laptop_2014"),
    ("second_machine", "second_2014"),
];

impl Machine {
    /// The machine whose disk that is.
    #[must_use]
    pub fn of_disk(disk: &str) -> Option<Self> {
        MACHINES.iter().find(|(_, known)| *known == disk).map(|(machine, _)| Self(machine))
    }

    /// Its name in the tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// The rate that was published, in MB/s.
#[must_use]
pub fn mib_s(machine: Machine, threads: u32, kernel: &str) -> Option<f64> {
    let threads = threads.to_string();
    ROWS.lines().find_map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let [of, "mean", "SeqRead", count, on, rate] = cells[..] else { return None };
        let is_it = (of, count, on) == (machine.name(), &*threads, kernel);
        if is_it { rate.parse().ok() } else { None }
    })
}

/// One change, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The machine.
    pub machine: Machine,
    /// Readers.
    pub threads: u32,
    /// MB/s, published: without and with the patch.
    pub published: (f64, f64),
    /// MiB/s, simulated: with 300 and 600 ms.
    pub simulated: (f64, f64),
}

/// How much more, in percent.
fn percent((before, after): (f64, f64)) -> f64 {
    (after / before - 1.0) * 100.0
}

impl Change {
    /// Of that machine, if it was published.
    #[must_use]
    pub fn of(machine: Machine, threads: u32, simulated: (f64, f64)) -> Option<Self> {
        let published = (mib_s(machine, threads, BASE)?, mib_s(machine, threads, PATCHED)?);
        Some(Self { machine, threads, published, simulated })
    }

    /// Published, in percent.
    #[must_use]
    pub fn published_change(&self) -> f64 {
        percent(self.published)
    }

    /// Simulated, in percent.
    #[must_use]
    pub fn simulated_change(&self) -> f64 {
        percent(self.simulated)
    }

    /// How far apart they are, in points.
    #[must_use]
    pub fn error(&self) -> f64 {
        (self.simulated_change() - self.published_change()).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_those_of_the_source() {
        let machine = Machine::of_disk("desktop_2014").expect("it is there");
        let changes = [(1, -0.23), (2, 0.36), (4, 2.35), (8, 8.39), (16, 12.18)];
        for (threads, published) in changes {
            let change = Change::of(machine, threads, (100.0, 110.0)).expect("published");
            assert!((change.published_change() - published).abs() < 0.02, "{change:?}");
            assert!((change.error() - (10.0 - published).abs()).abs() < 0.02);
        }
        assert_eq!(Change::of(machine, 3, (1.0, 1.0)), None);
        let second = Machine::of_disk("second_2014").expect("it is there");
        assert_eq!(Change::of(second, 1, (1.0, 1.0)), None, "it did not run that patch");
    }
}

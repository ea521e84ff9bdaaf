//! What was published about a workload, to stand beside its table.
//!
//! The numbers are those of Lu, "Eliminate zone->lock contention for will-it-scale/page_fault1
//! and parallel free", RFC v2, March 2018, and of the patches' own descriptions. They were taken
//! on other machines, most of them with 56 to 112 CPUs at work, so only the ratio of a kernel to
//! its base can be compared with the ratio of a preset to `Linux416`.
//!
//! ```
//! use zonal_bench::published;
//! use zonal_bench::workload::Workload;
//!
//! let facts = published::facts(Workload::ThpMix);
//! assert!(facts.iter().any(|fact| fact.metric == "thp_score" && fact.preset() == Some("SkipMerge")));
//! ```

use core::time::Duration;

use crate::figures::Figure;
use crate::options::Options;
use crate::stats::Row;
use crate::workload::Workload;
use zonal_cli::table::Table;

/// Where the numbers are from.
pub const SOURCE: &str = "source: A. Lu, RFC v2 0/4 to 4/4, March 2018 (Linux 4.16)";

const FACTS: &str = include_str!("../data/published_zone_lock.csv");

/// The preset that others are compared with.
const BASE: &str = "Linux416";

/// One published number.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
pub struct Fact {
    /// The machine.
    pub machine: String,
    /// The workload and its variant.
    pub workload: String,
    /// The kernel: `base` or a patch.
    pub kernel: String,
    /// What was measured.
    pub metric: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
}

impl Fact {
    /// The preset that stands for the kernel.
    #[must_use]
    pub fn preset(&self) -> Option<&'static str> {
        match self.kernel.as_str() {
            "base" => Some(BASE),
            "skip_merge" => Some("SkipMerge"),
            "cluster" => Some("Cluster"),
            "cluster_free" => Some("ClusterFree"),
            _ => None,
        }
    }

    /// The figure of a row that is the same thing, here.
    fn figure(&self) -> Option<Figure> {
        match self.metric.as_str() {
            "order0_score" => Some(Figure::Order0Rate),
            "thp_score" => Some(Figure::Order9Rate),
            "success_rate" => Some(Figure::SuccessRate),
            "mean_time_per_huge_page" => Some(Figure::MeanNsPerBlock),
            _ => None,
        }
    }

    /// The variant of the workload.
    fn options(&self) -> Options {
        let delay = self.workload.strip_prefix("stress_highalloc_delay_");
        let delay = delay.and_then(|delay| delay.strip_suffix("ms")?.parse().ok());
        Options { delay: delay.map(Duration::from_millis), ..Options::default() }
    }

    /// What rows of the same variant have as their `variant`.
    fn variant(&self) -> Option<String> {
        self.options().label()
    }

    /// Most samples that are taken of the same variant. No other workload than this has few.
    fn most_samples(&self) -> usize {
        Workload::StressHighalloc.most_samples(self.options())
    }
}

/// The facts about `workload`, in the order of the source.
#[must_use]
pub fn facts(workload: Workload) -> Vec<Fact> {
    let prefix = match workload {
        Workload::PageFault1 => "page_fault1",
        Workload::ParallelFree => "parallel_free",
        Workload::ThpMix => "thp_mix",
        Workload::StressHighalloc => "stress_highalloc",
        Workload::KbuildMix => "kbuild",
        _ => return Vec::new(),
    };
    let facts =
        csv::Reader::from_reader(FACTS.as_bytes()).into_deserialize().filter_map(Result::ok);
    facts.filter(|fact: &Fact| fact.workload.starts_with(prefix)).collect()
}

/// Whether a row of which at most as many samples are taken may be compared: it is sound, or all that is wrong with
/// it is that those are few.
fn can_compare(row: &Row, most_samples: usize) -> bool {
    row.is_sound() || (row.mark() == "few" && row.samples >= most_samples)
}

/// A preset's number by that of the base, where both were measured alike: of the threads, distances and paths, those
/// where the preset is fastest.
fn ratio_here(rows: &[Row], fact: &Fact, preset: &str) -> Option<f64> {
    let (figure, variant) = (fact.figure()?, fact.variant());
    let of = |row: &&Row, subject: &str| {
        row.subject == subject && row.variant == variant && can_compare(row, fact.most_samples())
    };
    let pairs = rows.iter().filter(|row| of(row, preset)).filter_map(|row| {
        let alike = |base: &&Row| {
            (base.threads, base.distance, base.path) == (row.threads, row.distance, row.path)
        };
        let base = rows.iter().filter(|base| of(base, BASE)).find(alike)?;
        let base = base.figures.get(figure).filter(|base| *base > 0.0)?;
        Some((row.ns_per_frame, row.figures.get(figure)? / base))
    });
    pairs.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, ratio)| ratio)
}

/// The facts as a table, with the ratios of `rows` beside theirs; `None` if there is no fact.
#[must_use]
pub fn table(workload: Workload, rows: &[Row]) -> Option<Table> {
    let facts = facts(workload);
    if facts.is_empty() {
        return None;
    }
    let mut table = Table::new(2);
    table.text("preset");
    table.text("workload");
    table.text("metric");
    table.number("value", "");
    table.text("unit");
    table.number("of base", "");
    table.number("here", "");
    table.text("machine");
    for fact in &facts {
        let of = |other: &&Fact| {
            (&other.workload, &other.metric, &*other.kernel)
                == (&fact.workload, &fact.metric, "base")
        };
        let base = facts.iter().find(of).map(|base| base.value).filter(|base| *base > 0.0);
        let here = fact.preset().and_then(|preset| ratio_here(rows, fact, preset));
        let ratio = |ratio: Option<f64>| ratio.map_or(String::new(), |it| format!("{it:.2}"));
        table.row([
            fact.preset().unwrap_or(&fact.kernel).to_owned(),
            fact.workload.clone(),
            fact.metric.clone(),
            fact.value.to_string(),
            fact.unit.clone(),
            ratio(base.map(|base| fact.value / base)),
            ratio(here),
            fact.machine.clone(),
        ]);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_fact_of_a_workload_and_a_preset() {
        let lines = FACTS.lines().count() - 1;
        let all: Vec<Fact> = Workload::ALL.into_iter().flat_map(facts).collect();
        assert_eq!(all.len(), lines);
        assert!(all.iter().all(|fact| fact.preset().is_some()));
    }

    #[test]
    fn rows_are_compared_with_rows_that_were_measured_alike() {
        use crate::figures::{Figure::Order9Rate, Figures};
        use crate::rendezvous::Distance;
        let row = |subject, threads, ns, rate| {
            let (workload, figures) = ("thp-mix", Figures::of(Order9Rate, rate));
            Row { workload, figures, ..Row::example(subject, threads, ns) }
        };
        let all = facts(Workload::ThpMix);
        let fact = all.iter().find(|it| it.metric == "thp_score").expect("there is one");
        let far = |row: Row| Row { distance: Some(Distance::Far), ..row };
        let ratio = |rows: &[Row]| ratio_here(rows, fact, "SkipMerge");
        let rows = [
            row(BASE, 1, 1.0, 8.0),
            row(BASE, 2, 3.0, 4.0),
            far(row(BASE, 2, 9.0, 2.0)),
            far(row("SkipMerge", 2, 5.0, 6.0)),
        ];
        assert_eq!(ratio(&rows), Some(3.0), "with the base as far apart");
        assert_eq!(ratio_here(&rows, fact, BASE), Some(1.0));
        let near = row("SkipMerge", 2, 2.0, 10.0);
        assert_eq!(
            ratio(&[&rows[..], std::slice::from_ref(&near)].concat()),
            Some(2.5),
            "the fastest"
        );
        let disturbed = Row { disturbed: true, ..near };
        assert_eq!(ratio(&[&rows[..], &[disturbed]].concat()), Some(3.0), "of those that count");
        assert_eq!(ratio(&rows[..2]), None);
        assert_eq!(ratio(&[row(BASE, 1, 1.0, 8.0), row("SkipMerge", 2, 1.0, 8.0)]), None);
        let few = |row: Row| Row { samples: 1, ..row };
        let once = [few(row(BASE, 1, 2.0, 4.0)), few(row("SkipMerge", 1, 1.0, 6.0))];
        assert_eq!(ratio(&once), None);
    }

    #[test]
    fn few_samples_are_enough_where_no_more_are_taken() {
        use crate::figures::{Figure::SuccessRate, Figures};
        let facts = facts(Workload::StressHighalloc);
        let ratio = |delay: u64, samples: usize, disturbed: bool| {
            let variant = Some(format!("delay {delay} ms"));
            let of = |fact: &&Fact| fact.metric == "success_rate" && fact.variant() == variant;
            let fact = facts.iter().find(of).expect("there is one");
            let row = |subject, rate| {
                let (workload, figures) = ("stress-highalloc", Figures::of(SuccessRate, rate));
                let row = Row { workload, samples, figures, ..Row::example(subject, 1, 1.0) };
                Row { variant: variant.clone(), disturbed, ..row }
            };
            ratio_here(&[row(BASE, 4.0), row("SkipMerge", 6.0)], fact, "SkipMerge")
        };
        assert_eq!(ratio(100, 1, false), Some(1.5), "once is all that it is run");
        assert_eq!(ratio(100, 1, true), None);
        assert_eq!(ratio(1, 1, false), None, "of five that are asked for");
        assert_eq!(ratio(1, 3, false), Some(1.5));
    }

    #[test]
    fn delays_name_their_variant() {
        let facts = facts(Workload::StressHighalloc);
        assert!(facts.iter().any(|fact| fact.variant().as_deref() == Some("delay 1 ms")));
        assert!(facts.iter().all(|fact| fact.variant().is_some() && fact.figure().is_some()));
    }
}

//! What the simulator and zonal have to show, and whether they do.
//!
//! ```
//! use zonal_reproduce::targets::Verdict;
//!
//! assert_eq!(Verdict::of(Some(true)).name(), "reached");
//! ```

use super::extras::Extras;
use super::facts::{BROADWELL_MACHINE, Table};
use super::plan::{self, Key, Runs, figure};
use super::rows::{Row, Summary};

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Reached,
    /// It is not.
    Missed,
    /// Nothing was run that would show it.
    NotRun,
    /// A quick run shows a figure and says nothing of whether it will do.
    NotJudged,
}

impl Verdict {
    /// The verdict on something that may be unknown.
    #[must_use]
    pub const fn of(reached: Option<bool>) -> Self {
        match reached {
            Some(true) => Self::Reached,
            Some(false) => Self::Missed,
            None => Self::NotRun,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Missed => "missed",
            Self::NotRun => "not run",
            Self::NotJudged => "-",
        }
    }
}

/// Something to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What it is about.
    pub group: &'static str,
    /// What is looked at.
    pub what: String,
    /// What it should be.
    pub wanted: String,
    /// What it is.
    pub got: String,
    /// Whether that will do.
    pub verdict: Verdict,
}

impl Target {
    fn new(
        group: &'static str,
        what: impl Into<String>,
        wanted: impl Into<String>,
        got: Option<(String, bool)>,
    ) -> Self {
        let verdict = Verdict::of(got.as_ref().map(|(_, reached)| *reached));
        let got = got.map_or("-".into(), |(got, _)| got);
        Self { group, what: what.into(), wanted: wanted.into(), got, verdict }
    }
}

impl Target {
    /// Whether there is a figure.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.verdict != Verdict::NotRun
    }

    /// The same from a quick run: the figure, and no verdict.
    #[must_use]
    pub fn unjudged(self) -> Self {
        let verdict = if self.is_shown() { Verdict::NotJudged } else { self.verdict };
        Self { verdict, ..self }
    }
}

/// A share of cycles that should be near the published one, or next to nothing.
enum Share {
    Within(f64),
    AtMost(f64),
}

/// Shares of cycles on the machines of the sources: workload, kernel, metric, what it should be.
const SHARES: [(&str, &str, &str, Share); 13] = [
    ("page_fault1_processes_full", "base", "zone_lock_spin", Share::Within(5.0)),
    ("page_fault1_processes_full", "base", "zone_lock_spin_alloc", Share::Within(5.0)),
    ("page_fault1_processes_full", "base", "zone_lock_spin_free", Share::Within(5.0)),
    ("page_fault1_processes_full", "skip_merge", "zone_lock_spin_free", Share::AtMost(3.0)),
    ("page_fault1_processes_full", "skip_merge", "zone_lock_spin_alloc", Share::Within(5.0)),
    ("page_fault1_processes_full", "skip_merge", "lru_lock_spin", Share::Within(10.0)),
    ("page_fault1_processes_full", "cluster", "zone_lock_spin", Share::AtMost(1.0)),
    ("page_fault1_processes_full", "cluster", "lru_lock_spin", Share::Within(10.0)),
    ("parallel_free_512g", "base", "zone_lock_spin", Share::Within(5.0)),
    ("parallel_free_512g", "skip_merge", "zone_lock_spin", Share::AtMost(1.0)),
    ("parallel_free_512g", "skip_merge", "lru_lock_spin", Share::Within(10.0)),
    ("parallel_free_512g", "cluster", "zone_lock_spin", Share::Within(5.0)),
    ("parallel_free_512g", "cluster_free", "zone_lock_spin", Share::AtMost(1.0)),
];

fn simulated(rows: &[Row], workload: &str, kernel: &str, metric: &str) -> Option<f64> {
    let is = |row: &&Row| {
        row.table == Table::ZoneLock.name()
            && (&*row.workload, &*row.kernel, &*row.metric) == (workload, kernel, metric)
    };
    rows.iter().find(is)?.simulated
}

/// Everything that is to be shown, in the order of the sections. `whole` are the tables of which every
/// row is there that can be simulated: some of them alone say nothing about a table.
#[must_use]
pub fn targets(rows: &[Row], whole: &[Table], extras: &Extras, runs: &Runs) -> Vec<Target> {
    let mut targets = overall(rows, whole);
    targets.extend(shares(rows));
    targets.extend(scaling(rows));
    targets.extend(thp_mix(rows));
    targets.extend(two_zones(rows));
    targets.extend(batched(rows));
    targets.extend(zonal(rows, extras, runs));
    targets
}

fn overall(rows: &[Row], whole: &[Table]) -> Vec<Target> {
    let group = "What patches change";
    let skill = |what: String, of: Option<f64>| {
        let got = of.map(|over| (format!("{over:+.2}"), over > 0.0));
        Target::new(group, format!("skill over predicting no change, {what}"), "above 0", got)
    };
    let over = |summary: &Summary| summary.skill.and_then(|skill| skill.over_no_change());
    let summaries = Summary::by_table(rows);
    let mut targets: Vec<Target> = Table::ALL
        .iter()
        .map(|table| {
            let summary = summaries.iter().find(|(name, _)| *name == table.name());
            let of = summary.filter(|_| whole.contains(table)).and_then(|(_, it)| over(it));
            skill(table.name().into(), of)
        })
        .collect();
    let all = Summary::of(rows);
    let is_whole = Table::ALL.iter().all(|table| whole.contains(table));
    targets.push(skill("all tables".into(), over(&all).filter(|_| is_whole)));
    let Summary { signs, wrong_signs, .. } = all;
    let got =
        (is_whole && signs > 0).then(|| (format!("{wrong_signs} of {signs}"), wrong_signs == 0));
    targets.push(Target::new(group, "changes with the wrong sign", "none", got));
    targets
}

fn shares(rows: &[Row]) -> impl Iterator<Item = Target> {
    SHARES.iter().map(|(workload, kernel, metric, share)| {
        let is = |row: &&Row| {
            (&*row.workload, &*row.kernel, &*row.metric) == (*workload, *kernel, *metric)
        };
        let published = rows.iter().find(is).map(|row| row.published);
        let got = simulated(rows, workload, kernel, metric);
        let (wanted, reached) = match share {
            Share::Within(points) => (
                published.map_or("as published".into(), |it| format!("{it} % ± {points} points")),
                got.zip(published).map(|(got, wanted)| (got - wanted).abs() <= *points),
            ),
            Share::AtMost(most) => (format!("at most {most} %"), got.map(|got| got <= *most)),
        };
        let group = if workload.starts_with("parallel") {
            "Parallel free of 512 GB"
        } else {
            "page_fault1 on 112 CPUs"
        };
        let got = got.zip(reached).map(|(got, reached)| (format!("{got:.1} %"), reached));
        Target::new(group, format!("{kernel}: {}", metric_text(metric)), wanted, got)
    })
}

/// A metric in words.
#[must_use]
pub fn metric_text(metric: &str) -> String {
    match metric {
        "zone_lock_spin" => "zone lock".into(),
        "zone_lock_spin_alloc" => "zone lock, allocating".into(),
        "zone_lock_spin_free" => "zone lock, freeing".into(),
        "lru_lock_spin" => "LRU lock".into(),
        "order0_score" => "single pages".into(),
        "thp_score" => "huge pages".into(),
        other => other.replace('_', " "),
    }
}

/// Of rows that should have been run, one without a number leaves a target open.
fn scaling(rows: &[Row]) -> Vec<Target> {
    let group = "Broadwell, 1 to 40 CPUs";
    let of = |workload: &'static str, kernel: &'static str| {
        rows.iter().filter(move |row| {
            (&*row.machine, &*row.workload, &*row.kernel) == (BROADWELL_MACHINE, workload, kernel)
                && row.reason.as_deref() != Some(plan::LEFT_OUT)
        })
    };
    let errors: Option<Vec<(u32, f64)>> =
        of("page_fault1_processes", "base").map(|row| Some((row.tasks?, row.error?))).collect();
    let worst = errors.unwrap_or_default().into_iter();
    let worst = worst.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    let mut targets = vec![Target::new(
        group,
        "base, processes: worst error of any number of tasks",
        "within 10 %",
        worst.map(|(tasks, error)| {
            (format!("{:+.1} % at {tasks}", error * 100.0), error.abs() <= 0.10)
        }),
    )];
    for (workload, what) in
        [("page_fault1_processes", "processes"), ("page_fault1_threads", "threads")]
    {
        let judged: Option<Vec<bool>> = of(workload, "zone_lock_series")
            .filter(|row| row.tasks >= Some(8))
            .map(|row| Some(row.published_change? * row.simulated_change? > 0.0))
            .collect();
        let judged = judged.unwrap_or_default();
        let right = judged.iter().filter(|right| **right).count();
        let got = (!judged.is_empty())
            .then(|| (format!("{right} of {}", judged.len()), right == judged.len()));
        let what = format!("sign of the series' gain from 8 {what} up");
        targets.push(Target::new(group, what, "right everywhere", got));
    }
    targets
}

fn thp_mix(rows: &[Row]) -> Vec<Target> {
    let mixed = rows.iter().filter(|row| row.workload.starts_with("thp_mix"));
    mixed
        .filter_map(|row| Some((row, row.published_change?)))
        .map(|(row, published)| {
            // The same direction, and within a factor of 3 of the published size.
            let near = |simulated: f64| (1.0 / 3.0..=3.0).contains(&(simulated / published));
            let got = row.simulated_change.map(|it| (format!("{it:+.0} %"), near(it)));
            let what = format!("{}: {} against base", row.kernel, metric_text(&row.metric));
            let wanted = format!("{published:+.1} %, up to a factor of 3");
            Target::new("Huge pages beside single ones", what, wanted, got)
        })
        .collect()
}

/// What a kernel's row of the tables beside the zone lock's shows.
fn beside(rows: &[Row], kernel: &str, metric: &str) -> Option<(f64, f64)> {
    let beside = [Table::FairZone, Table::BatchedIrq].map(Table::name);
    let is = |row: &&Row| {
        (&*row.kernel, &*row.metric) == (kernel, metric) && beside.contains(&row.table)
    };
    let row = rows.iter().find(is)?;
    Some((row.published, row.simulated?))
}

fn two_zones(rows: &[Row]) -> Vec<Target> {
    let shares = [
        ("3.16-rc1", "dma32_share"),
        ("fairzone", "dma32_share"),
        ("3.0", "dma32_share"),
        ("3.16-rc1", "dma32_velocity_share"),
        ("3.0", "dma32_velocity_share"),
    ];
    let target = |(kernel, metric): (&str, &str)| {
        let row = beside(rows, kernel, metric);
        let wanted = row.map_or("as published".into(), |(it, _)| format!("{it:.1} % ± 5 points"));
        let got = row.map(|(published, simulated)| {
            (format!("{simulated:.1} %"), (simulated - published).abs() <= 5.0)
        });
        let what = if metric == "dma32_share" { "pages allocated" } else { "pages reclaimed" };
        Target::new("DMA32's part of two zones", format!("{kernel}: {what}"), wanted, got)
    };
    shares.into_iter().map(target).collect()
}

fn batched(rows: &[Row]) -> [Target; 1] {
    let of = |kernel| beside(rows, kernel, "2nd-qrtle");
    let gain = of("base").zip(of("one_irq")).map(|((before, old), (after, new))| {
        ((after / before - 1.0) * 100.0, (new / old - 1.0) * 100.0)
    });
    let wanted = gain.map_or("as published".into(), |(it, _)| format!("{it:+.1} % ± 3 points"));
    let got = gain.map(|(published, simulated)| {
        (format!("{simulated:+.1} %"), (simulated - published).abs() <= 3.0)
    });
    [Target::new("Interrupts off once for a list", "median time of a file", wanted, got)]
}

fn zonal(rows: &[Row], extras: &Extras, runs: &Runs) -> Vec<Target> {
    let group = "Zonal on the same machines";
    let mut targets: Vec<Target> =
        extras.waits.iter().map(|(place, keys)| waits(group, place, keys, runs)).collect();
    let mix = "thp_mix_56_order0_56_thp";
    for (metric, kernel) in [("order0_score", "skip_merge"), ("thp_score", "base")] {
        let got = extras.thp_mix.as_ref().and_then(|key| value(runs, key, metric));
        let got = got.zip(simulated(rows, mix, kernel, metric));
        let got = got.map(|(got, wanted)| (format!("{:.2} of it", got / wanted), got >= wanted));
        let what = format!("{} in the THP mix", metric_text(metric));
        targets.push(Target::new(group, what, format!("at least that of {kernel}"), got));
    }
    let most: Option<Vec<f64>> =
        extras.unlocked.iter().map(|key| value(runs, key, "faults_per_s")).collect();
    let most = most.unwrap_or_default().into_iter().max_by(f64::total_cmp);
    let split = extras.split_lru.as_ref().and_then(|key| value(runs, key, "faults_per_s"));
    let part = split.zip(most.filter(|most| *most > 0.0)).map(|(split, most)| split / most);
    targets.push(Target::new(
        group,
        "page_fault1 on 112 CPUs with the split LRU lock, of what no lock at all allows",
        "at least 0.9",
        part.map(|part| (format!("{part:.2}"), part >= 0.9)),
    ));
    targets.extend(highalloc(group, rows, extras, runs));
    targets
}

/// How long `Zonal` waits for zone locks and lines of the allocator, at most over some runs.
fn waits(group: &'static str, place: &str, keys: &[Key], runs: &Runs) -> Target {
    let wait = |key: &Key| {
        let outcome = runs.outcome(key).ok()?;
        Some((outcome.spin_percent("zone") + outcome.line_percent(), key.spec.tasks))
    };
    let all: Option<Vec<(f64, u32)>> = keys.iter().map(wait).collect();
    let most = all.and_then(|all| all.into_iter().max_by(|one, other| one.0.total_cmp(&other.0)));
    let got = most.map(|(percent, tasks)| {
        let at = if keys.len() > 1 { format!(" with {tasks} tasks") } else { String::new() };
        (format!("{percent:.2} %{at}"), percent < 0.5)
    });
    Target::new(group, format!("zone locks and lines, {place}"), "under 0.5 %", got)
}

/// How many huge pages `Zonal` gets from memory full of page cache, and how long that takes.
fn highalloc(
    group: &'static str,
    rows: &[Row],
    extras: &Extras,
    runs: &Runs,
) -> impl Iterator<Item = Target> {
    let of = |workload: &str, key, metric| {
        Some((value(runs, key, metric)?, simulated(rows, workload, "base", metric)?))
    };
    extras.highalloc.iter().flat_map(move |(workload, key)| {
        let delay = workload.rsplit('_').next().unwrap_or_default();
        let served = of(workload, key, "success_rate");
        let served =
            served.map(|(got, base)| (format!("{:+.0} points", got - base), got >= base + 5.0));
        let time = of(workload, key, "mean_time_per_huge_page");
        let time = time.map(|(got, base)| (format!("{:.2} of it", got / base), got <= base));
        let what = |it| format!("stress-highalloc, {delay}: {it}");
        [
            Target::new(group, what("success"), "at least 5 points above base", served),
            Target::new(group, what("mean time of a request"), "at most that of base", time),
        ]
    })
}

fn value(runs: &Runs, key: &Key, name: &str) -> Option<f64> {
    figure(runs.outcome(key).ok()?, name).ok()
}

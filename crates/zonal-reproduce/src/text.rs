//! The results for a terminal.
//!
//! ```
//! use zonal_reproduce::facts::Unit;
//! use zonal_reproduce::text::shown;
//!
//! assert_eq!(shown(1_522_246.0, Unit::Faults), "1 522 246");
//! assert_eq!(shown(3_959_270.0, Unit::Ns), "3.96 ms");
//! ```

use std::io::{self, Write};

use zonal_cli::table::Table as Shown;
use zonal_cli::terminal::fold;

use super::Report;
use super::facts::Unit;
use super::report::{MEANS, QUICK};
use super::rows::{CHOICES, Kind, Row, Skill, Summary};
use super::sections::SECTIONS;
use super::targets::{Target, Verdict};

/// A number with its unit, as short as it can be without losing what matters.
#[must_use]
pub fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::PercentCycles | Unit::PercentRate | Unit::PercentShare => format!("{value:.1} %"),
        Unit::PercentCyclesAtMost => format!("{value:.2} %"),
        Unit::PercentChange => format!("{value:+.1} %"),
        Unit::Ns => format!("{:.2} ms", value / 1e6),
        Unit::Us => format!("{value:.1} µs"),
        Unit::OpsPerSecond | Unit::Requests => format!("{value:.1}"),
        Unit::MbPerSecond => format!("{value:.2}"),
        Unit::Ms => format!("{value:.1} ms"),
        Unit::Count | Unit::Faults | Unit::FaultsPerSecond | Unit::Pages | Unit::PagesPerSecond => {
            grouped(value)
        }
    }
}

/// The unit of what [`shown`] prints as a bare number.
const fn unit_of(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "times",
        Unit::Faults => "faults",
        Unit::FaultsPerSecond => "faults/s",
        Unit::Pages => "pages",
        Unit::PagesPerSecond => "pages/s",
        Unit::OpsPerSecond => "/s",
        Unit::MbPerSecond => "MiB/s",
        Unit::Requests => "requests",
        Unit::PercentCycles
        | Unit::PercentCyclesAtMost
        | Unit::PercentChange
        | Unit::PercentRate
        | Unit::PercentShare
        | Unit::Ns
        | Unit::Us
        | Unit::Ms => "",
    }
}

/// A whole number in groups of three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// A change in percent.
#[must_use]
pub fn change(percent: f64) -> String {
    format!("{percent:+.1} %")
}

/// An error as a person reads it: of a share or a change in percentage points, of what else in percent.
fn error_of(error: f64, unit: Unit) -> String {
    match unit {
        Unit::PercentCycles
        | Unit::PercentCyclesAtMost
        | Unit::PercentChange
        | Unit::PercentShare => format!("{:+.1} points", error * 100.0),
        _ => change(error * 100.0),
    }
}

/// What there is to say about a row: why it was not simulated, or that its sign is wrong.
#[must_use]
pub fn remark(row: &Row) -> String {
    match (&row.reason, row.wrong_sign) {
        (Some(reason), _) => format!("not simulated: {reason}"),
        (None, Some(true)) => "wrong sign".into(),
        (None, _) => String::new(),
    }
}

fn rows_table(rows: &[&Row]) -> Shown {
    let several = rows.iter().any(|row| row.workload != rows[0].workload);
    let mut table = Shown::new(4);
    table.text("workload");
    table.number("tasks", "");
    table.text("kernel");
    table.text("metric");
    table.number("published", "");
    table.number("simulated", "");
    table.text("unit");
    for head in ["error", "published change", "simulated change"] {
        table.number(head, "");
    }
    table.text("kind");
    table.text("remark");
    for row in rows {
        table.row([
            if several { row.workload.clone() } else { String::new() },
            row.tasks.map_or(String::new(), |tasks| tasks.to_string()),
            row.kernel.clone(),
            row.metric.clone(),
            shown(row.published, row.kind_of_unit),
            row.simulated.map_or(String::new(), |it| shown(it, row.kind_of_unit)),
            unit_of(row.kind_of_unit).to_owned(),
            row.error.map_or(String::new(), |error| error_of(error, row.kind_of_unit)),
            row.published_change.map_or(String::new(), change),
            row.simulated_change.map_or(String::new(), change),
            row.kind.name().to_owned(),
            remark(row),
        ]);
    }
    table
}

/// The targets that something was run for, a line each.
fn targets_table(targets: &[Target]) -> Shown {
    let mut table = Shown::new(3);
    for head in ["verdict", "of", "what", "wanted", "got"] {
        table.text(head);
    }
    let mut last = "";
    for target in targets.iter().filter(|target| target.is_shown()) {
        let group = if target.group == last { "" } else { target.group };
        last = target.group;
        table.row([target.verdict.name(), group, &*target.what, &*target.wanted, &*target.got]);
    }
    table
}

/// Prints everything: the rows section by section, the targets, the summary.
///
/// # Errors
///
/// Those of `out`.
pub fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for section in &SECTIONS {
        let rows = section.rows(&report.rows);
        if !rows.is_empty() {
            writeln!(out, "{} ({})", section.title, section.table.name())?;
            writeln!(out, "{}\n{}", fold(section.about), rows_table(&rows))?;
            let changes = Skill::of(rows.iter().copied());
            match changes {
                Some(_) => writeln!(out, "{}\n", fold(&format!("changes: {}", skill(changes))))?,
                None => writeln!(out)?,
            }
        }
    }
    conclusion(report, out)
}

/// Prints where the cycles go, the targets and the summary.
///
/// # Errors
///
/// Those of `out`.
pub fn conclusion(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if !report.cycles.is_empty() {
        writeln!(out, "Where the cycles of 112 CPUs go (page_fault1, simulated)")?;
        writeln!(out, "{}\n", cycles_table(report))?;
    }
    if report.choice.quick {
        writeln!(out, "{}\n", fold(QUICK))?;
    }
    if report.targets.iter().any(super::targets::Target::is_shown) {
        writeln!(out, "What it must show\n{}\n", targets_table(&report.targets))?;
    }
    for (name, summary) in Summary::by_table(&report.rows) {
        writeln!(out, "{}", fold(&format!("{name}: {}", sentence(&summary))))?;
        writeln!(out, "{}", fold(&format!("{name}, changes: {}", skill(summary.skill))))?;
    }
    if report.has_means {
        writeln!(out, "{}", fold(MEANS))?;
    }
    let count = |verdict| report.targets.iter().filter(|it| it.verdict == verdict).count();
    if report.choice.quick {
        writeln!(out, "targets: not judged by a quick run")?;
    } else {
        writeln!(
            out,
            "targets: {} reached, {} missed, {} not run",
            count(Verdict::Reached),
            count(Verdict::Missed),
            count(Verdict::NotRun)
        )?;
    }
    let all = Summary::of(&report.rows);
    writeln!(out, "{}", fold(&format!("all: {}", sentence(&all))))?;
    if report.rows.iter().any(|row| row.kind == Kind::InView) {
        writeln!(out, "Chosen in view of rows of patched kernels:")?;
        for (of, what) in CHOICES {
            writeln!(out, "{}", fold(&format!("  {of}: {what}")))?;
        }
        let blind = report.rows.iter().filter(|row| row.kind == Kind::Predicted);
        let said = format!("changes, nothing chosen in view: {}", skill(Skill::of(blind)));
        writeln!(out, "{}", fold(&said))?;
    }
    writeln!(out, "{}", fold(&format!("changes, all tables: {}", skill(all.skill))))?;
    out.flush()
}

fn cycles_table(report: &Report) -> Shown {
    let mut table = Shown::new(1);
    table.text("preset");
    for head in ["zone lock: alloc", "free", "LRU lock", "other locks", "work"] {
        table.number(head, "% cycles");
    }
    table.number("faults", "/s");
    for bar in &report.cycles {
        let parts = bar.parts.map(|part| format!("{part:.1}"));
        let faults = bar.faults_per_s.map(grouped).unwrap_or_default();
        table.row([bar.label.to_string()].into_iter().chain(parts).chain([faults]));
    }
    table
}

/// How well changes are predicted, in a sentence.
#[must_use]
pub fn skill(skill: Option<Skill>) -> String {
    let Some(skill) = skill else { return "none was simulated".into() };
    let over = skill.over_no_change().map_or("-".into(), |it| format!("{it:+.2}"));
    let seen = match skill.in_view {
        0 => String::new(),
        seen => format!(", {seen} of them chosen in view"),
    };
    format!(
        "error {:.3}, of predicting no change {:.3}, skill {over} over {} rows{seen}",
        skill.error, skill.no_change, skill.rows
    )
}

/// A summary in a sentence.
#[must_use]
pub fn sentence(summary: &Summary) -> String {
    let fitted = summary.mean_error_fitted.map_or("-".into(), |mean| format!("{mean:.3}"));
    format!(
        "{} rows, {} not simulated; fitted rows are {fitted} off; wrong sign: {} of {}",
        summary.rows, summary.missing, summary.wrong_signs, summary.signs
    )
}

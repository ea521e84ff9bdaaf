//! The report: one HTML document with its charts and style inside, for a person to look at.
//!
//! ```
//! use zonal_reproduce::report::FITTED;
//!
//! assert!(FITTED.contains("base"));
//! ```

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Report;
use super::charts::Chart;
use super::rows::{CHOICES, Row, Skill, Summary};
use super::sections::{SECTIONS, Section};
use super::targets::{Target, Verdict, metric_text};
use super::text;

const STYLE: &str = include_str!("report.css");

/// What fitted rows are.
pub const FITTED: &str = "The constants of the machines (what a cache line from another core, an \
    interrupt toggle or a page fault costs) were chosen so that the rows of the base kernels come \
    out, and so were the sizes of two zones and what of them is used otherwise. The number of bulk frees is fitted too: it says how long that run was.";

/// What predicted rows are.
const PREDICTED: &str = "Rows of patched kernels. The same machine runs another preset of the same \
    allocator, and nothing was chosen for them.";

/// What rows are that something was chosen in view of.
const IN_VIEW: &str = "Rows of patched kernels that were looked at when something of the workload was \
    settled, which the sources do not say. They are no predictions.";

/// Which rows are means.
pub(super) const MEANS: &str = "Threads of one process, huge pages beside single ones and huge pages from full \
    memory differ much from seed to seed: the mean of six runs is shown.";

/// What a quick run is worth.
pub(super) const QUICK: &str = "This is a quick run: shorter, one where a mean of six is shown otherwise, and not of \
    every row. It has figures and no verdicts: those are the whole run's.";

/// What errors are.
const ERRORS: &str = "Simulated / published − 1 for counts, rates and times. For shares \
    and for changes in percent, the difference in points / 100. Where a source gives an upper \
    bound, what is above it.";

/// What a wrong sign is.
const SIGNS: &str = "A published change that goes one way while the simulated one goes the other. \
    Changes of faults a second within their published standard deviation are not judged, nor is what \
    disks do, whose tables have no deviations.";

/// Tables with more rows are folded up until a reader opens them: the chart above says the same.
const OPEN_ROWS: usize = 16;

/// What the model does without.
const LEFT_OUT: [&str; 5] = [
    "Instructions are not executed one by one: an access to the allocator's metadata costs what \
     the cache line does and a constant around it.",
    "Caches are counted in lines by owner, sharers and room; sets, ways and replacement within \
     them are not.",
    "The interconnect has distances, not queues; memory has a bandwidth for each socket, not \
     channels and banks.",
    "Work around the allocator (faults, clearing, mapping, TLB flushes, LRU lists) is a price for \
     each, not a kernel; other processes, interrupts of devices and the scheduler are not there.",
    "CPUs of one core share it by a constant factor, and frequency follows from how many cores of \
     a socket are busy, not from temperature.",
];

/// The document.
#[must_use]
pub fn html(report: &Report, charts: &[Chart]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "The zone lock, published and simulated" }
                style { (PreEscaped(STYLE)) }
            }
            body { main {
                (head(report))
                (tiles(report))
                (overview(report, charts))
                (targets(&report.targets))
                (cycles(report, charts))
                @for section in &SECTIONS { (part(section, report, charts)) }
                (method(report))
                footer { "zonal " (env!("CARGO_PKG_VERSION")) ", zonal reproduce, seed "
                    (report.choice.seed) ", " (report.runs) " runs. The same seed gives the same \
                    numbers on every machine." }
            } }
        }
    };
    page.into_string()
}

fn has_rows(section: &Section, report: &Report) -> bool {
    report.rows.iter().any(|row| section.holds(row))
}

fn head(report: &Report) -> Markup {
    html! {
        h1 { "The zone lock, published and simulated" }
        p.lede {
            "Measurements of the Linux page allocator on machines with 8 to 224 CPUs, beside what "
            "the same mechanisms do in zonal's simulator. Constants were fitted on the unpatched \
             kernels alone; what the patches do is predicted, but for rows that are marked."
            @if report.choice.quick { " " (QUICK) }
        }
        nav {
            a href="#overview" { "Errors" }
            a href="#targets" { "Targets" }
            @if !report.cycles.is_empty() { a href="#cycles" { "Where the cycles go" } }
            @for section in SECTIONS.iter().filter(|it| has_rows(it, report)) {
                a href={ "#" (section.id) } { (section.title) }
            }
            a href="#method" { "Method" }
        }
    }
}

fn tile(name: &str, value: &str, note: &str, good: Option<bool>) -> Markup {
    let class = match good {
        Some(true) => "tile good",
        Some(false) => "tile bad",
        None => "tile",
    };
    html! {
        div class=(class) {
            div.name { (name) }
            div.value { (value) }
            div.note { (note) }
        }
    }
}

fn tiles(report: &Report) -> Markup {
    let all = Summary::of(&report.rows);
    let (error, none) = (all.skill.map(|it| it.error), all.skill.map(|it| it.no_change));
    let count = |verdict| report.targets.iter().filter(|it| it.verdict == verdict).count();
    let (reached, missed) = (count(Verdict::Reached), count(Verdict::Missed));
    let judged = reached + missed;
    html! {
        div.tiles {
            (tile("Error of predicted changes", &mean(error),
                &format!("of predicting no change: {}; over {} rows of all tables", mean(none),
                    all.skill.map_or(0, |it| it.rows)), None))
            (tile("Skill over no change", &over_no_change(all.skill),
                "1: as published; 0: no better than saying that nothing changes", None))
            (tile("Wrong signs", &all.wrong_signs.to_string(),
                &format!("of {} changes that can be judged", all.signs),
                (all.signs > 0).then_some(all.wrong_signs == 0)))
            @if !report.choice.quick {
                (tile("Targets reached", &format!("{reached} / {judged}"),
                    &format!("{missed} missed, {} not run", count(Verdict::NotRun)),
                    (judged > 0).then_some(missed == 0)))
            }
            (tile("Rows simulated", &format!("{} / {}", all.rows - all.missing, all.rows),
                "of the published tables", None))
        }
    }
}

fn chart(charts: &[Chart], name: &str) -> Markup {
    html! {
        @if let Some(chart) = charts.iter().find(|chart| chart.name == name) {
            figure { (PreEscaped(chart.inline())) }
        }
    }
}

fn overview(report: &Report, charts: &[Chart]) -> Markup {
    html! {
        section id="overview" {
            h2 { "How far off" }
            p.about { "Every published number is a dot: simulated below what was published on the \
                left, above on the right. What counts is the change that a patch makes: its error \
                beside that of predicting no change, and the skill over it." }
            div.wide { (chart(charts, "errors")) }
            div.scroll { table {
                tr { th { "table" } th.n { "rows" } th.n { "not simulated" }
                    th.n { "error of the change" } th.n { "of no change" } th.n { "skill" }
                    th.n { "chosen in view" } th.n { "mean error, fitted" }
                    th.n { "wrong sign" } }
                @for (name, it) in Summary::by_table(&report.rows) {
                    tr {
                        td { (name) }
                        td.n { (it.rows) }
                        td.n { (it.missing) }
                        td.n { (mean(it.skill.map(|skill| skill.error))) }
                        td.n { (mean(it.skill.map(|skill| skill.no_change))) }
                        td.n { (over_no_change(it.skill)) }
                        td.n { (it.skill.map_or(0, |skill| skill.in_view)) }
                        td.n { (mean(it.mean_error_fitted)) }
                        td.n { (it.wrong_signs) " of " (it.signs) }
                    }
                }
            } }
        }
    }
}

fn over_no_change(skill: Option<Skill>) -> String {
    skill.and_then(|skill| skill.over_no_change()).map_or("–".into(), |it| format!("{it:+.2}"))
}

fn mean(mean: Option<f64>) -> String {
    mean.map_or("–".into(), |mean| format!("{mean:.3}"))
}

fn verdict(verdict: Verdict) -> Markup {
    let class = match verdict {
        Verdict::Reached => "badge reached",
        Verdict::Missed => "badge missed",
        Verdict::NotRun | Verdict::NotJudged => "badge",
    };
    html! { span class=(class) { (verdict.name()) } }
}

fn targets(targets: &[Target]) -> Markup {
    let mut groups: Vec<&str> = targets.iter().map(|target| target.group).collect();
    groups.dedup();
    html! {
        section id="targets" {
            h2 { "What it must show" }
            p.about { "What a simulator has to get right to be believed, and what zonal's own \
                preset has to do on the same machines." }
            table {
                @for group in groups {
                    tr { th { (group) } th { "wanted" } th.n { "got" } th.n { "" } }
                    @for target in targets.iter().filter(|target| target.group == group) {
                        tr {
                            td { (target.what) }
                            td { (target.wanted) }
                            td.n { (target.got) }
                            td.n { (verdict(target.verdict)) }
                        }
                    }
                }
            }
        }
    }
}

fn cycles(report: &Report, charts: &[Chart]) -> Markup {
    html! {
        @if !report.cycles.is_empty() {
            section id="cycles" {
                h2 { "Where the cycles go" }
                p.about { "page_fault1 on 112 CPUs, simulated. When the zone lock is relieved, the \
                    LRU lock of the node takes over; the last bar has an LRU lock for each CPU's \
                    pages instead." }
                div.wide { (chart(charts, "where-the-cycles-go")) }
            }
        }
    }
}

fn part(section: &Section, report: &Report, charts: &[Chart]) -> Markup {
    let rows = section.rows(&report.rows);
    let summary = Summary::of(rows.iter().copied());
    html! {
        @if !rows.is_empty() {
            section id=(section.id) {
                h2 { (section.title) }
                p.about { (section.about) }
                @if let Some(skill) = summary.skill {
                    p { "Changes: " (text::skill(Some(skill))) "." }
                }
                @if summary.signs > 0 {
                    p { "Wrong sign: " strong { (summary.wrong_signs) " of " (summary.signs) } "." }
                }
                div.charts {
                    (chart(charts, section.id))
                    (chart(charts, &format!("{}-gain", section.id)))
                }
                details open=[(rows.len() <= OPEN_ROWS).then_some("open")] {
                    summary { "All " (rows.len()) " rows" }
                    div.scroll { (rows_table(&rows)) }
                }
            }
        }
    }
}

fn rows_table(rows: &[&Row]) -> Markup {
    let tasks = rows.iter().any(|row| row.tasks.is_some());
    let metrics = rows.iter().any(|row| row.metric != rows[0].metric);
    let workloads = rows.iter().any(|row| row.workload != rows[0].workload);
    let changes = rows.iter().any(|row| row.published_change.is_some());
    let number = |text: Option<String>| html! { td.n { (text.unwrap_or_default()) } };
    html! {
        table {
            tr {
                @if workloads { th { "workload" } }
                @if tasks { th.n { "tasks" } }
                th { "kernel" }
                @if metrics { th { "metric" } }
                th.n { "published" }
                th.n { "simulated" }
                @if changes { th.n { "change, published" } th.n { "change, simulated" } }
                th.n { "error" }
                th { "kind" }
            }
            @for row in rows {
                tr class=(if row.kind.is_patched() { "predicted" } else { "fitted" }) {
                    @if workloads { td { (row.workload.replace('_', " ")) } }
                    @if tasks { (number(row.tasks.map(|tasks| tasks.to_string()))) }
                    td { (row.kernel.replace('_', " ")) }
                    @if metrics { td { (metric_text(&row.metric)) } }
                    (number(Some(text::shown(row.published, row.kind_of_unit))))
                    @if let Some(reason) = &row.reason { td.n { em { (reason) } } }
                    @else { (number(row.simulated.map(|it| text::shown(it, row.kind_of_unit)))) }
                    @if changes {
                        (number(row.published_change.map(text::change)))
                        (number(row.simulated_change.map(text::change)))
                    }
                    (error(row))
                    td { (row.kind.name()) }
                }
            }
        }
    }
}

fn error(row: &Row) -> Markup {
    let text = row.error.map_or("–".into(), |error| format!("{error:+.3}"));
    let wrong = row.wrong_sign == Some(true);
    // Further off than saying nothing.
    let off = row.change_error > row.no_change_error;
    html! {
        @if wrong { td.n.off { (text) " wrong sign" } }
        @else if off { td.n.off { (text) } }
        @else { td.n { (text) } }
    }
}

fn method(report: &Report) -> Markup {
    html! {
        section id="method" {
            h2 { "Method" }
            p.about { "The allocator's own source runs on virtual CPUs. Each has a clock in cycles; \
                every access to shared metadata and every lock costs what the machine file says \
                that a cache line at that distance does, and the CPU with the smallest clock \
                runs next." }
            dl {
                dt { "fitted" } dd { (FITTED) }
                dt { "predicted" } dd { (PREDICTED) }
                dt { "chosen in view" } dd { (IN_VIEW)
                    ul { @for (of, what) in CHOICES { li { (of) ": " (what) } } } }
                @if report.has_means { dt { "mean" } dd { (MEANS) } }
                dt { "error" } dd { (ERRORS) }
                dt { "wrong sign" } dd { (SIGNS) }
            }
            h3 { "What the model leaves out" }
            ul { @for it in LEFT_OUT { li { (it) } } }
            @if !report.failures.is_empty() {
                h3 { "Runs that failed" }
                ul { @for it in &report.failures { li { (it) } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plotters::style::RGBColor;

    use super::STYLE;
    use crate::charts::palette::{self, of_kernel};

    #[test]
    fn what_would_be_dark_on_dark_has_another_colour_there() {
        let (_, dark) = STYLE.split_once("prefers-color-scheme: dark").expect("there is one");
        let kernels = ["base", "skip_merge", "cluster", "cluster_free", "huge_pcp_batch", "Zonal"];
        let others = [palette::INK, palette::MUTED, palette::WORK];
        for RGBColor(r, g, b) in kernels.map(of_kernel).into_iter().chain(others) {
            let fill = format!("[fill=\"#{r:02X}{g:02X}{b:02X}\"]");
            assert!(dark.contains(&fill), "{fill}");
        }
        for RGBColor(r, g, b) in [palette::GRID, palette::AXIS, palette::MUTED] {
            let stroke = format!("[stroke=\"#{r:02X}{g:02X}{b:02X}\"]");
            assert!(dark.contains(&stroke), "{stroke}");
        }
    }
}

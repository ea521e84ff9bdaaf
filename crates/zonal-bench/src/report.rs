//! Results for people (tables) and for programs (JSON lines, CSV).
//!
//! Whether files can be written is found out before the run, and not after minutes of measuring; they
//! come to be, or are replaced, when there is something to write.
//!
//! ```
//! let (out, csv) = (None, None);
//! let mut files = zonal_bench::report::Files::open(out, csv)?;
//! files.write(&[])?;
//! # Ok::<(), zonal_cli::error::LabError>(())
//! ```

use std::io::{self, Write};
use std::path::Path;

use crate::engine::Outcome;
use crate::figures::{Figure, HOLD_CLASSES};
use crate::options::Options;
use crate::published;
use crate::stats::Row;
use crate::subject::Group;
use crate::workload::Workload;
use zonal_cli::error::LabError;
use zonal_cli::outfile::OutFile;
use zonal_cli::provenance::Provenance;
use zonal_cli::table::Table;
use zonal_cli::terminal;

/// The files results go to.
#[derive(Debug)]
pub struct Files {
    json: Option<OutFile>,
    csv: Option<OutFile>,
    started: bool,
}

impl Files {
    /// Looks whether the files of `--out` and `--csv` can be written, and leaves them as they are.
    ///
    /// # Errors
    ///
    /// [`LabError::Unwritable`]; [`LabError::SameFile`] if both are one.
    pub fn open(out: Option<&Path>, csv: Option<&Path>) -> Result<Self, LabError> {
        let (json, csv) =
            (out.map(OutFile::open).transpose()?, csv.map(OutFile::open).transpose()?);
        if let (Some(json), Some(csv)) = (&json, &csv)
            && json.is_same(csv)
        {
            return Err(LabError::SameFile { first: "--out", second: "--csv" });
        }
        Ok(Self { json, csv, started: false })
    }

    /// Adds rows; the first ones replace what was in the files.
    ///
    /// # Errors
    ///
    /// [`LabError::Unwritable`].
    pub fn write(&mut self, rows: &[Row]) -> Result<(), LabError> {
        if rows.is_empty() {
            return Ok(());
        }
        let first = !self.started;
        self.started = true;
        if let Some(file) = &mut self.json {
            let mut lines = Vec::new();
            json_lines(rows, &mut lines)?;
            file.extend(&lines)?;
        }
        if let Some(file) = &mut self.csv {
            file.extend(&csv_lines(rows, first)?)?;
        }
        Ok(())
    }
}

/// Rows as CSV, with the names of the columns if they are the first.
fn csv_lines(rows: &[Row], first: bool) -> io::Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new().has_headers(first).from_writer(Vec::new());
    rows.iter().try_for_each(|row| writer.serialize(row))?;
    writer.into_inner().map_err(csv::IntoInnerError::into_error)
}

/// Writes rows as JSON, one object a line.
///
/// # Errors
///
/// Those of `out`.
pub fn json_lines(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    /// A row with what CSV has no column for.
    #[derive(serde::Serialize)]
    struct Line<'a> {
        #[serde(flatten)]
        row: &'a Row,
        hold_frames: Option<[u64; HOLD_CLASSES]>,
        #[serde(flatten)]
        origin: &'a Provenance,
    }
    let origin = Provenance::of_this_run();
    for row in rows {
        serde_json::to_writer(&mut *out, &Line { row, hold_frames: row.hold_frames, origin })?;
        writeln!(out)?;
    }
    out.flush()
}

pub(crate) fn number(ns: f64) -> String {
    if ns.is_nan() {
        String::new()
    } else if ns < 100.0 {
        format!("{ns:.2}")
    } else {
        format!("{ns:.0}")
    }
}

/// What names a subject in a table: presets of zonal have two paths, others have the one they have.
pub(crate) fn name(row: &Row) -> String {
    match row.group {
        Group::Zonal => format!("{} {}", row.subject, row.path),
        Group::Peer | Group::Reference => row.subject.to_owned(),
    }
}

fn range(row: &Row) -> String {
    let is_empty = row.died.is_some();
    if is_empty { String::new() } else { format!("{}–{}", number(row.min), number(row.max)) }
}

/// The threads of a row, and how far their CPUs are apart.
fn threads(row: &Row) -> String {
    let distance = row.distance.map_or(String::new(), |it| format!(" {}", it.name()));
    format!("{}{distance}", row.threads)
}

/// The table of one workload: by variant and thread count, the fastest first; with the figures
/// that it counts beside the time, if they are wanted.
#[must_use]
pub fn table(rows: &[Row], figures: bool) -> Table {
    let has = |figure: &Figure| rows.iter().any(|row| row.figures.get(*figure).is_some());
    let figures: Vec<Figure> = Figure::ALL.into_iter().filter(|it| figures && has(it)).collect();
    let mut table = Table::new(3);
    table.text("subject");
    table.text("threads");
    table.text("variant");
    table.number("median", "ns");
    table.number("range", "ns");
    table.number("scaling", "1: ideal");
    table.number("kept", "samples");
    table.text("mark");
    for figure in &figures {
        table.number(figure.heading(), figure.unit());
    }
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by(|a, b| {
        let key = (&a.variant, a.threads, a.distance).cmp(&(&b.variant, b.threads, b.distance));
        key.then(a.ns_per_frame.total_cmp(&b.ns_per_frame))
    });
    for row in rows {
        let own = [
            name(row),
            threads(row),
            row.variant.clone().unwrap_or_default(),
            number(row.ns_per_frame),
            range(row),
            row.scaling.map_or(String::new(), |scaling| format!("{scaling:.2}")),
            format!("{}/{}", row.samples, row.samples + row.dropped),
            row.mark().to_owned(),
        ];
        let counted = figures.iter().map(|figure| {
            row.figures.get(*figure).map_or(String::new(), |value| figure.shown(value))
        });
        table.row(own.into_iter().chain(counted));
    }
    table
}

/// Prints the table of one workload with what a reader must know; with the figures that it counts
/// beside the time, if they are wanted.
///
/// # Errors
///
/// Those of `out`.
pub fn print(
    (workload, options): (Workload, Options),
    touch: bool,
    rows: &[Row],
    figures: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let touched = if touch && workload.touches() { ", each page written to" } else { "" };
    writeln!(out, "\n{}: {}{touched}", workload.name(), workload.about())?;
    writeln!(out, "{}", table(rows, figures))?;
    let each = if workload == Workload::ProducerConsumer { "pair of threads" } else { "thread" };
    let (timed, unit) = (workload.timed(options), workload.unit());
    let told =
        format!("ns: wall time to {timed} one {unit}, per {each}; median and range of those kept.");
    writeln!(out, "{}", terminal::fold(&told))?;
    let mut told = Vec::new();
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        if !told.contains(&(row.subject, row.note)) {
            told.push((row.subject, row.note));
            writeln!(out, "{}", terminal::fold(&format!("  {}: {}", row.subject, row.note)))?;
        }
    }
    for row in rows {
        if let Some(how) = &row.died {
            let died = format!("died: {} on {} thread(s): {how}", name(row), row.threads);
            writeln!(out, "{}", terminal::warning(&terminal::fold(&died)))?;
        }
    }
    let marks = [
        ("disturbed", "a thread lost its CPU in every sample"),
        ("scattered", "samples lie twice apart in their middle half, or ten times in all"),
        ("few", "fewer than three samples were kept"),
    ];
    let mut marked = false;
    for (mark, meaning) in marks {
        if rows.iter().any(|row| row.mark() == mark) {
            marked = true;
            writeln!(out, "{}: {meaning}.", terminal::warning(mark))?;
        }
    }
    if marked {
        writeln!(out, "Marked rows are compared with nothing; run it again on an idle machine.")?;
    }
    out.flush()
}

/// Prints what a reader of a table may also want: the work per hold of the zone lock, and what
/// was published about the workload, on other machines.
///
/// # Errors
///
/// Those of `out`.
pub fn details(workload: Workload, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let counted = rows.iter().filter_map(|row| Some((row, row.hold_frames?)));
    let mut holds = Table::new(2);
    holds.text("subject");
    holds.text("threads");
    for class in 0..HOLD_CLASSES {
        let bound = if class == 12 { "more".to_owned() } else { format!("<{}", 1u32 << class) };
        holds.number(bound, "");
    }
    for (row, counts) in counted {
        let counts = counts.map(|n| if n == 0 { String::new() } else { n.to_string() });
        holds.row([name(row), threads(row)].into_iter().chain(counts));
    }
    if !holds.is_empty() {
        writeln!(out, "\nHolds of the zone lock by frames of work in them:\n{holds}")?;
    }
    if let Some(table) = published::table(workload, rows) {
        writeln!(out, "\npublished (other machines; ratios only):\n{table}")?;
        writeln!(out, "{}", published::SOURCE)?;
    }
    out.flush()
}

/// Says on `out` who took no part and why.
///
/// # Errors
///
/// Those of `out`.
pub fn absences(workload: Workload, outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    for absence in &outcome.absent {
        let threads = absence.threads.map_or(String::new(), |n| format!(" on {n} thread(s)"));
        let verb = if absence.failed { "failed" } else { "has no row" };
        writeln!(
            out,
            "{}{threads} {verb} in {}: {}",
            absence.subject,
            workload.name(),
            absence.why
        )?;
    }
    Ok(())
}

//! Results for people (tables) and for programs (JSON lines, CSV).
//!
//! Files are opened before the run, so that a name that cannot be written is not found out after
//! minutes of measuring; what was in them is replaced only when there is something to write.
//!
//! ```
//! let (out, csv) = (None, None);
//! let mut files = zonal_bench::report::Files::open(out, csv)?;
//! files.write(&[])?;
//! # Ok::<(), zonal_cli::error::LabError>(())
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use comfy_table::{Cell, CellAlignment, Table, presets};

use crate::engine::Outcome;
use crate::figures::{Figure, HOLD_CLASSES};
use crate::options::Options;
use crate::published;
use crate::stats::Row;
use crate::subject::Group;
use crate::workload::Workload;
use zonal_cli::error::LabError;
use zonal_cli::outfile::OutFile;

/// The files results go to.
#[derive(Debug)]
pub struct Files {
    json: Option<(PathBuf, File)>,
    csv: Option<(PathBuf, csv::Writer<File>)>,
    started: bool,
}

fn open(path: &Path) -> Result<File, LabError> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    file.map_err(|source| LabError::Unwritable { path: path.into(), source })
}

impl Files {
    /// Opens the files of `--out` and `--csv`.
    ///
    /// # Errors
    ///
    /// [`LabError::Unwritable`]; [`LabError::SameFile`] if both are one.
    pub fn open(out: Option<&Path>, csv: Option<&Path>) -> Result<Self, LabError> {
        if let (Some(out), Some(csv)) = (out, csv)
            && OutFile::open(out)?.is_same(&OutFile::open(csv)?)
        {
            return Err(LabError::SameFile { first: "--out", second: "--csv" });
        }
        let json = out.map(|path| open(path).map(|file| (path.into(), file))).transpose()?;
        let csv =
            csv.map(|path| open(path).map(|file| (path.into(), csv::Writer::from_writer(file))));
        Ok(Self { json, csv: csv.transpose()?, started: false })
    }

    /// Appends rows; the first call empties the files.
    ///
    /// # Errors
    ///
    /// [`LabError::Unwritable`].
    pub fn write(&mut self, rows: &[Row]) -> Result<(), LabError> {
        let first = !self.started && !rows.is_empty();
        self.started |= first;
        if let Some((path, file)) = &mut self.json {
            let result = if first { empty(file) } else { Ok(()) };
            result
                .and_then(|()| json_lines(rows, file))
                .map_err(|source| LabError::Unwritable { path: path.clone(), source })?;
        }
        if let Some((path, writer)) = &mut self.csv {
            let result = if first { empty(writer.get_ref()) } else { Ok(()) };
            result
                .and_then(|()| {
                    rows.iter().try_for_each(|row| writer.serialize(row).map_err(io::Error::from))
                })
                .and_then(|()| writer.flush())
                .map_err(|source| LabError::Unwritable { path: path.clone(), source })?;
        }
        Ok(())
    }
}

/// Empties a file that has a length; devices and pipes have none.
fn empty(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
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
    }
    for row in rows {
        serde_json::to_writer(&mut *out, &Line { row, hold_frames: row.hold_frames })?;
        writeln!(out)?;
    }
    out.flush()
}

fn number(ns: f64) -> String {
    if ns < 100.0 { format!("{ns:.2}") } else { format!("{ns:.0}") }
}

/// The table of one workload: by variant and thread count, the fastest first.
#[must_use]
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    let has = |figure: &Figure| rows.iter().any(|row| row.figures.get(*figure).is_some());
    let figures: Vec<Figure> = Figure::ALL.into_iter().filter(has).collect();
    let variants = rows.iter().any(|row| row.variant.is_some());
    let several = rows.iter().any(|row| row.threads > 1);
    let disturbed = rows.iter().any(|row| row.disturbed);
    let mut header = vec!["subject", "path", "threads"];
    header.extend(variants.then_some("variant"));
    header.extend(several.then_some("distance"));
    header.extend(["ns", "min", "max"]);
    header.extend(several.then_some("scaling"));
    header.extend(figures.iter().map(|figure| figure.heading()));
    header.extend(["samples", "dropped"]);
    header.extend(disturbed.then_some("disturbed"));
    table.set_header(&header);
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by(|a, b| {
        let key = (&a.variant, a.threads, a.distance).cmp(&(&b.variant, b.threads, b.distance));
        key.then(a.ns_per_frame.total_cmp(&b.ns_per_frame))
    });
    for row in rows {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let mut cells = vec![Cell::new(row.subject), Cell::new(row.path)];
        cells.push(right(row.threads.to_string()));
        cells.extend(variants.then(|| Cell::new(row.variant.as_deref().unwrap_or(""))));
        cells.extend(several.then(|| Cell::new(row.distance.map_or("", |it| it.name()))));
        cells.extend([row.ns_per_frame, row.min, row.max].map(|ns| right(number(ns))));
        let scaling = row.scaling.map_or(String::new(), |scaling| format!("{scaling:.2}"));
        cells.extend(several.then(|| right(scaling)));
        cells.extend(figures.iter().map(|figure| {
            right(row.figures.get(*figure).map_or(String::new(), |value| figure.shown(value)))
        }));
        cells.push(right(row.samples.to_string()));
        cells.push(right(row.dropped.to_string()));
        cells.extend(disturbed.then(|| Cell::new(if row.disturbed { "yes" } else { "" })));
        table.add_row(cells);
    }
    table
}

/// Prints the table of one workload with what a reader must know.
///
/// # Errors
///
/// Those of `out`.
pub fn print(
    (workload, options): (Workload, Options),
    touch: bool,
    rows: &[Row],
    out: &mut dyn Write,
) -> io::Result<()> {
    let touched = if touch && workload.touches() { ", each page written to" } else { "" };
    writeln!(out, "\n{}: {}{touched}", workload.name(), workload.about())?;
    writeln!(out, "{}", table(rows))?;
    let each = if workload == Workload::ProducerConsumer { "pair of threads" } else { "thread" };
    writeln!(
        out,
        "ns: median wall time to {} one {}, per {each}.",
        workload.timed(options),
        workload.unit()
    )?;
    let mut told = Vec::new();
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        if !told.contains(&(row.subject, row.note)) {
            told.push((row.subject, row.note));
            writeln!(out, "  {}: {}", row.subject, row.note)?;
        }
    }
    if rows.iter().any(|row| row.disturbed) {
        writeln!(
            out,
            "disturbed: a thread lost its CPU in every sample; run it again on an idle machine."
        )?;
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
    let mut holds = Table::new();
    holds.load_preset(presets::UTF8_FULL_CONDENSED);
    let mut header = vec!["subject".to_owned(), "path".into(), "threads".into()];
    let bounds = (0..HOLD_CLASSES).map(|class| match class {
        12 => "more".to_owned(),
        class => format!("<{}", 1u32 << class),
    });
    header.extend(bounds);
    holds.set_header(header);
    for (row, counts) in counted {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let mut cells = vec![Cell::new(row.subject), Cell::new(row.path)];
        cells.push(right(row.threads.to_string()));
        cells.extend(counts.map(|count| right(count.to_string())));
        holds.add_row(cells);
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

/// One sentence for a newcomer per thread count: the fastest preset against the fastest peer.
#[must_use]
pub fn verdicts(rows: &[Row]) -> Vec<String> {
    let fastest = |rows: &[&Row], wanted: Group| -> Option<(&'static str, f64)> {
        let of = rows.iter().filter(|row| row.group == wanted);
        let best = of.min_by(|a, b| a.ns_per_frame.total_cmp(&b.ns_per_frame))?;
        Some((best.subject, best.ns_per_frame))
    };
    let mut keys: Vec<_> = rows.iter().map(|row| (row.threads, row.distance)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .filter_map(|(threads, distance)| {
            let alike = |row: &&Row| (row.threads, row.distance) == (threads, distance);
            let rows: Vec<&Row> = rows.iter().filter(alike).collect();
            let (preset, ours) = fastest(&rows, Group::Zonal)?;
            let (peer, theirs) = fastest(&rows, Group::Peer)?;
            let apart = distance.map_or(String::new(), |it| format!(", CPUs {}", it.name()));
            Some(format!(
                "{threads} thread(s){apart}: {preset} takes {} ns a frame, {peer} {} ns: {:.1} \
                 times as long.",
                number(ours),
                number(theirs),
                theirs / ours
            ))
        })
        .collect()
}

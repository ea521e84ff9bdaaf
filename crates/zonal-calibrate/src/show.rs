//! What was found, for people and for programs.
//!
//! ```
//! use zonal_calibrate::{describe, show, survey};
//!
//! let effort = survey::Effort { rounds: 1, most: core::time::Duration::from_secs(1) };
//! let survey = survey::take(effort)?;
//! let description = describe::describe(&survey, "box")?;
//! let mut out = Vec::new();
//! show::tables(&survey, &description, &mut out)?;
//! assert!(String::from_utf8(out)?.contains("locked add"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::describe::{Description, Origin, REFERENCE};
use super::quantity::{Figure, Quantity, Unit};
use super::survey::{PairFigure, Survey};
use super::topology::Kinship;

fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(header);
    table
}

fn figures(figure: &Figure) -> Vec<Cell> {
    let mut cells: Vec<Cell> =
        [figure.median, figure.min, figure.max].map(|value| right(number(value))).into();
    let dropped = if figure.disturbed { "disturbed".into() } else { figure.dropped.to_string() };
    cells.extend([right(figure.samples.to_string()), right(dropped)]);
    cells
}

/// Prints tables of what was measured, and what was not.
///
/// # Errors
///
/// Those of `out`.
pub fn tables(survey: &Survey, description: &Description, out: &mut dyn Write) -> io::Result<()> {
    let machine = &description.machine;
    writeln!(out, "{}", machine.title)?;
    let ghz = machine.clock.nominal_ghz;
    let mut table = new_table(&["", "median", "min", "max", "samples", "dropped", "", "cycles"]);
    for (quantity, figure) in survey.ledger.figures() {
        let mut cells = vec![Cell::new(quantity.about())];
        cells.extend(figures(&figure));
        let unit = quantity.unit();
        cells.push(Cell::new(unit));
        let is_time = unit == Unit::Nanoseconds;
        cells.push(right(if is_time { number(figure.median * ghz) } else { String::new() }));
        table.add_row(cells);
    }
    writeln!(out, "{table}")?;
    writeln!(out, "cycles: of the nominal clock, {ghz} GHz.")?;
    if survey.pairs.is_empty() {
        writeln!(out, "One CPU: nothing to say of lines that another has written.")?;
    } else {
        writeln!(out, "\nA line between two CPUs, in ns:\n{}", pairs(&survey.pairs))?;
    }
    for note in &survey.notes {
        writeln!(out, "Note: {note}.")?;
    }
    let defaults = description.fields.iter().filter(|field| field.origin == Origin::Default);
    writeln!(out, "\nNot measured:")?;
    for field in defaults {
        writeln!(out, "  {}.{}: {}", field.table, field.key, field.remark)?;
    }
    writeln!(out, "(defaults are those of the built-in machine {REFERENCE})")?;
    out.flush()
}

fn pairs(pairs: &[PairFigure]) -> Table {
    let mut table = new_table(&[
        "CPUs",
        "lie",
        "distance",
        "round trip",
        "min",
        "max",
        "load",
        "min",
        "max",
        "samples",
        "dropped",
    ]);
    for pair in pairs {
        let lie = match pair.kinship {
            Kinship::Sibling => "one core",
            Kinship::Socket => "one socket",
            Kinship::Apart => "two sockets",
        };
        let mut cells = vec![Cell::new(format!("{}, {}", pair.a, pair.b)), Cell::new(lie)];
        cells.push(Cell::new(pair.distance.name()));
        let Figure { median, min, max, .. } = pair.round_trip;
        cells.extend([median, min, max].map(|ns| right(number(ns))));
        cells.extend(figures(&pair.line));
        table.add_row(cells);
    }
    table
}

/// A line of JSON.
#[derive(serde::Serialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum Record<'a> {
    Machine {
        name: &'a str,
        title: &'a str,
        cpus: &'a [usize],
        notes: &'a [String],
    },
    Figure {
        name: String,
        unit: Unit,
        #[serde(flatten)]
        figure: Figure,
    },
    Pair(&'a PairFigure),
    Field {
        table: &'a str,
        key: &'a str,
        value: serde_json::Value,
        origin: Origin,
        remark: &'a str,
    },
}

/// Writes the same as JSON, one object a line: the machine, each figure, each pair of CPUs, and
/// each value of the machine file.
///
/// # Errors
///
/// Those of `out`.
pub fn json(survey: &Survey, description: &Description, out: &mut dyn Write) -> io::Result<()> {
    let machine = &description.machine;
    let mut write = |record: &Record<'_>| {
        serde_json::to_writer(&mut *out, record)?;
        writeln!(out)
    };
    write(&Record::Machine {
        name: &machine.name,
        title: &machine.title,
        cpus: &survey.allowed,
        notes: &survey.notes,
    })?;
    let figures: Vec<(Quantity, Figure)> = survey.ledger.figures().collect();
    for (quantity, figure) in figures {
        write(&Record::Figure { name: quantity.name(), unit: quantity.unit(), figure })?;
    }
    for pair in &survey.pairs {
        write(&Record::Pair(pair))?;
    }
    let values = serde_json::to_value(machine)?;
    for field in &description.fields {
        let value = values[field.table][field.key].clone();
        let (table, key, remark) = (field.table, field.key, &field.remark);
        write(&Record::Field { table, key, value, origin: field.origin, remark })?;
    }
    out.flush()
}

//! What was found, for people and for programs.
//!
//! ```
//! use zonal_calibrate::{describe, show, survey};
//! use zonal_cli::bar::Bar;
//!
//! let effort = survey::Effort { rounds: 1, most: core::time::Duration::from_secs(1) };
//! let survey = survey::take(effort, Bar::of_time(true))?;
//! let description = describe::describe(&survey, "box")?;
//! let mut out = Vec::new();
//! show::tables(&survey, &description, &mut out)?;
//! assert!(String::from_utf8(out)?.contains("locked add"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{self, Write};

use zonal_cli::provenance::Provenance;
use zonal_cli::table::Table;
use zonal_cli::terminal;

use super::describe::{Description, Origin, REFERENCE};
use super::quantity::{Figure, Quantity, Unit};
use super::survey::{PairFigure, Survey};
use super::topology::Kinship;

fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

fn figures(figure: &Figure) -> [String; 5] {
    let [median, min, max] = [figure.median, figure.min, figure.max].map(number);
    let dropped = if figure.disturbed { "disturbed".into() } else { figure.dropped.to_string() };
    [median, min, max, figure.samples.to_string(), dropped]
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
    let mut table = Table::new(1);
    table.text("what");
    table.text("unit");
    for head in ["median", "min", "max"] {
        table.number(head, "");
    }
    table.number("median", "cycles");
    table.number("samples", "");
    table.number("dropped", "");
    for (quantity, figure) in survey.ledger.figures() {
        let unit = quantity.unit();
        let is_time = unit == Unit::Nanoseconds;
        let cycles = if is_time { number(figure.median * ghz) } else { String::new() };
        let [median, min, max, samples, dropped] = figures(&figure);
        let name = quantity.about().to_string();
        table.row([name, unit.to_string(), median, min, max, cycles, samples, dropped]);
    }
    writeln!(out, "{table}")?;
    writeln!(out, "cycles: of the nominal clock, {ghz} GHz.")?;
    if survey.pairs.is_empty() {
        writeln!(out, "One CPU: nothing to say of lines that another has written.")?;
    } else {
        writeln!(out, "\nA line between two CPUs:\n{}", pairs(&survey.pairs))?;
    }
    for note in &survey.notes {
        writeln!(out, "{}", terminal::fold(&format!("Note: {note}.")))?;
    }
    let defaults = description.fields.iter().filter(|field| field.origin == Origin::Default);
    writeln!(out, "\nNot measured:")?;
    for field in defaults {
        let line = format!("  {}.{}: {}", field.table, field.key, field.remark);
        writeln!(out, "{}", terminal::fold(&line))?;
    }
    writeln!(out, "(defaults are those of the built-in machine {REFERENCE})")?;
    out.flush()
}

fn pairs(pairs: &[PairFigure]) -> Table {
    let mut table = Table::new(1);
    table.text("CPUs");
    table.text("lie");
    table.text("distance");
    for head in ["round trip", "min", "max", "load", "min", "max"] {
        table.number(head, "ns");
    }
    table.number("samples", "");
    table.number("dropped", "");
    for pair in pairs {
        let lie = match pair.kinship {
            Kinship::Sibling => "one core",
            Kinship::Socket => "one socket",
            Kinship::Apart => "two sockets",
        };
        let own = [format!("{}, {}", pair.a, pair.b), lie.into(), pair.distance.name().into()];
        let Figure { median, min, max, .. } = pair.round_trip;
        let trip = [median, min, max].map(number);
        table.row(own.into_iter().chain(trip).chain(figures(&pair.line)));
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

/// A record, and where it is from.
#[derive(serde::Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    record: &'a Record<'a>,
    #[serde(flatten)]
    origin: &'a Provenance,
}

/// Writes the same as JSON, one object a line: the machine, each figure, each pair of CPUs, and
/// each value of the machine file.
///
/// # Errors
///
/// Those of `out`.
pub fn json(survey: &Survey, description: &Description, out: &mut dyn Write) -> io::Result<()> {
    let machine = &description.machine;
    let origin = Provenance::of_this_run();
    let mut write = |record: &Record<'_>| {
        serde_json::to_writer(&mut *out, &Line { record, origin })?;
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

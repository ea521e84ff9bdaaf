//! Published and simulated side by side, a line a row, a panel a unit.
//!
//! ```
//! use zonal_reproduce::{charts::dumbbell, sections::SECTIONS};
//!
//! assert!(dumbbell::chart(&SECTIONS[0], &[])?.svg().contains("published"));
//! # Ok::<(), zonal_cli::error::LabError>(())
//! ```

use plotters::style::text_anchor::HPos;

use super::palette::{AXIS, GRID, INK, MUTED, ZONAL, kernel_text, of_kernel};
use super::{Canvas, Chart, DrawError, Type, disc, line, ring, round_step, write};
use crate::facts::Unit;
use crate::rows::Row;
use crate::sections::Section;
use crate::targets::metric_text;
use crate::text::shown;
use zonal_cli::error::LabError;

const WIDTH: f64 = 760.0;
/// Where the scales begin and end.
const SCALE: (f64, f64) = (236.0, 586.0);
const LINE: f64 = 23.0;
const PANEL_TOP: f64 = 30.0;
const PANEL_BOTTOM: f64 = 34.0;
const TOP: f64 = 58.0;

/// Rows that share a scale.
struct Panel<'a> {
    title: String,
    rows: Vec<&'a Row>,
}

fn heading(row: &Row) -> String {
    let what = metric_text(&row.metric);
    match row.kind_of_unit {
        Unit::PercentCycles | Unit::PercentCyclesAtMost => {
            format!("{}: waiting for a lock, % of all cycles", variant(row))
        }
        Unit::PercentChange => format!("{}: score against base, %", variant(row)),
        Unit::PercentRate => format!("{what}, %"),
        Unit::Ns => format!("{what}, ms"),
        Unit::Count => format!("after {}", row.workload),
        Unit::Faults | Unit::FaultsPerSecond => "pages, millions".into(),
        Unit::Pages => "pages allocated, millions".into(),
        Unit::PercentShare => "the part of DMA32, %".into(),
        Unit::PagesPerSecond => "pages that reclaim looked at, a second".into(),
        Unit::Us => "time to truncate a file, µs".into(),
        // Hundreds of times as many: another scale.
        Unit::OpsPerSecond if row.metric.ends_with("_del") => {
            "bonnie, files deleted a second".into()
        }
        Unit::OpsPerSecond => "bonnie, files made and read a second".into(),
        Unit::MbPerSecond => "MiB a second".into(),
        Unit::Ms => "waiting for the disk, ms".into(),
        Unit::Requests => "requests in the queue".into(),
    }
}

/// A workload in words.
fn variant(row: &Row) -> String {
    match &*row.workload {
        "page_fault1_16_processes" => "page_fault1, 16 processes".into(),
        "page_fault1_processes_full" => "page_fault1".into(),
        "kbuild_j224" => "kbuild -j224".into(),
        "parallel_free_512g" => "parallel free".into(),
        other => other.replace('_', " "),
    }
}

fn panels<'a>(rows: &[&'a Row]) -> Vec<Panel<'a>> {
    let mut panels: Vec<Panel<'a>> = Vec::new();
    for row in rows {
        let title = heading(row);
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.rows.push(row),
            None => panels.push(Panel { title, rows: vec![row] }),
        }
    }
    // Published numbers alone compare nothing.
    panels.retain(|panel| panel.rows.iter().any(|row| row.simulated.is_some()));
    panels
}

fn label(row: &Row) -> String {
    let what = metric_text(&row.metric);
    let kernel = kernel_text(&row.kernel);
    match row.kind_of_unit {
        Unit::PercentChange | Unit::PercentShare => kernel,
        Unit::PercentRate | Unit::Ns => {
            let delay = row.workload.rsplit('_').next().and_then(|it| it.strip_suffix("ms"));
            delay.map_or_else(|| format!("{kernel}: {what}"), |ms| format!("{kernel}, {ms} ms"))
        }
        Unit::Count => what,
        _ => format!("{kernel}: {what}"),
    }
}

fn scaled(value: f64, unit: Unit) -> f64 {
    match unit {
        Unit::Ns | Unit::Faults | Unit::FaultsPerSecond | Unit::Pages => value / 1e6,
        _ => value,
    }
}

/// The chart of a section whose rows are each of a kind; without the kinds of which nothing was
/// simulated.
///
/// # Errors
///
/// [`LabError::Chart`].
pub fn chart(section: &Section, rows: &[&Row]) -> Result<Chart, LabError> {
    let panels = panels(rows);
    let height = |panel: &Panel<'_>| PANEL_TOP + panel.rows.len() as f64 * LINE + PANEL_BOTTOM;
    let all = TOP + panels.iter().map(height).sum::<f64>();
    let title = format!("{}: published and simulated", section.title);
    Chart::draw(section.id, &title, (WIDTH as u32, all as u32), |canvas| {
        write(canvas, section.title, (16.0, 20.0), Type::new(15.0).bold())?;
        legend(canvas, rows.iter().any(|row| row.wrong_sign == Some(true)))?;
        let mut top = TOP;
        for panel in &panels {
            draw(canvas, panel, top)?;
            top += height(panel);
        }
        Ok(())
    })
}

fn legend(canvas: &Canvas<'_>, wrong: bool) -> Result<(), DrawError> {
    let small = Type::new(12.0).color(MUTED);
    ring(canvas, (22.0, 42.0), 4.5, MUTED)?;
    write(canvas, "published", (32.0, 42.0), small)?;
    disc(canvas, (108.0, 42.0), 4.5, MUTED)?;
    write(canvas, "simulated", (118.0, 42.0), small)?;
    if wrong {
        write(canvas, "in red: wrong sign", (194.0, 42.0), small.color(ZONAL))?;
    }
    let at_right = small.anchor(HPos::Right);
    write(canvas, "published", (WIDTH - 88.0, 42.0), at_right)?;
    write(canvas, "simulated", (WIDTH - 14.0, 42.0), at_right)
}

fn draw(canvas: &Canvas<'_>, panel: &Panel<'_>, top: f64) -> Result<(), DrawError> {
    let values = panel.rows.iter().flat_map(|row| {
        let each = [Some(row.published), row.simulated].into_iter().flatten();
        each.map(|value| scaled(value, row.kind_of_unit))
    });
    let (low, high) =
        values.fold((0.0, 0.0), |(low, high): (f64, f64), it| (low.min(it), high.max(it)));
    let step = round_step(high - low, 5);
    let (low, high) = ((low / step).floor() * step, ((high / step).ceil() * step).max(step));
    let x = |value: f64| SCALE.0 + (value - low) / (high - low) * (SCALE.1 - SCALE.0);
    let (first, last) = (top + PANEL_TOP, top + PANEL_TOP + panel.rows.len() as f64 * LINE);
    write(canvas, &panel.title, (16.0, top + 14.0), Type::new(12.5).bold())?;
    let mut tick = low;
    while tick <= high + step / 2.0 {
        let zero = tick.abs() < step / 2.0;
        let color = if zero { AXIS } else { GRID };
        line(canvas, &[(x(tick), first - 2.0), (x(tick), last + 2.0)], color, 1.0)?;
        let text = tick_text(if zero { 0.0 } else { tick }, step);
        let small = Type::new(11.0).color(MUTED).anchor(HPos::Center);
        write(canvas, &text, (x(tick), last + 12.0), small)?;
        tick += step;
    }
    for (place, row) in panel.rows.iter().enumerate() {
        let y = first + (place as f64 + 0.5) * LINE;
        row_line(canvas, row, y, &x)?;
    }
    Ok(())
}

fn tick_text(tick: f64, step: f64) -> String {
    if tick.abs() >= 1e6 {
        format!("{} M", tick / 1e6)
    } else if step >= 1.0 {
        format!("{tick:.0}")
    } else {
        format!("{tick:.1}")
    }
}

fn row_line(
    canvas: &Canvas<'_>,
    row: &Row,
    y: f64,
    x: &impl Fn(f64) -> f64,
) -> Result<(), DrawError> {
    let unit = row.kind_of_unit;
    let color = of_kernel(&row.kernel);
    let published = x(scaled(row.published, unit));
    write(canvas, &label(row), (SCALE.0 - 18.0, y), Type::new(12.5).anchor(HPos::Right))?;
    let value = Type::new(12.0).anchor(HPos::Right);
    write(canvas, &shown(row.published, unit), (WIDTH - 88.0, y), value.color(MUTED))?;
    if let Some(simulated) = row.simulated {
        let at = x(scaled(simulated, unit));
        line(canvas, &[(published, y), (at, y)], color, 2.0)?;
        // The ring is the wider one, so that it shows where both are in one place.
        ring(canvas, (published, y), 6.0, color)?;
        disc(canvas, (at, y), 4.0, color)?;
        let color = if row.wrong_sign == Some(true) { ZONAL } else { INK };
        write(canvas, &shown(simulated, unit), (WIDTH - 14.0, y), value.color(color))
    } else {
        ring(canvas, (published, y), 6.0, color)?;
        write(canvas, "not simulated", (WIDTH - 14.0, y), value.color(MUTED))
    }
}

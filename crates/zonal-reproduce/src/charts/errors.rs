//! How far off all rows are, a line a section.
//!
//! ```
//! use zonal_reproduce::charts::errors::place;
//!
//! assert_eq!(place(0.25), 0.25);
//! assert_eq!(place(-7.0), -1.0);
//! ```

use plotters::style::text_anchor::HPos;

use super::palette::{AXIS, BASE, CLUSTER, GRID, MUTED, ZONAL};
use super::{Canvas, Chart, DrawError, Type, disc, line, ring, write};
use crate::Report;
use crate::rows::{Kind, Row, Skill};
use crate::sections::SECTIONS;
use zonal_cli::error::LabError;

const WIDTH: f64 = 860.0;
const SCALE: (f64, f64) = (250.0, 770.0);
const LINE: f64 = 34.0;
const TOP: f64 = 64.0;

/// An error within the scale: what is beyond its ends is shown there.
#[must_use]
pub fn place(error: f64) -> f64 {
    error.clamp(-1.0, 1.0)
}

fn x(error: f64) -> f64 {
    f64::midpoint(SCALE.0, SCALE.1) + place(error) * (SCALE.1 - SCALE.0) / 2.0
}

/// The chart.
///
/// # Errors
///
/// [`LabError::Chart`].
pub fn chart(report: &Report) -> Result<Chart, LabError> {
    let sections: Vec<(&str, Vec<&Row>)> = SECTIONS
        .iter()
        .map(|section| (section.title, section.rows(&report.rows)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    let last = TOP + sections.len() as f64 * LINE;
    let size = (WIDTH as u32, (last + 34.0) as u32);
    Chart::draw("errors", "The error of every row", size, |canvas| {
        write(canvas, "The error of every row", (16.0, 20.0), Type::new(15.0).bold())?;
        let small = Type::new(12.0).color(MUTED);
        disc(canvas, (22.0, 43.0), 4.0, CLUSTER)?;
        write(canvas, "patched", (32.0, 43.0), small)?;
        ring(canvas, (106.0, 43.0), 4.0, BASE)?;
        write(canvas, "fitted", (116.0, 43.0), small)?;
        disc(canvas, (166.0, 43.0), 4.0, ZONAL)?;
        write(canvas, "wrong sign", (176.0, 43.0), small)?;
        let mean = small.anchor(HPos::Right);
        write(canvas, "skill", (WIDTH - 14.0, 43.0), mean)?;
        scale(canvas, last)?;
        for (place, (title, rows)) in sections.iter().enumerate() {
            section(canvas, title, rows, TOP + (place as f64 + 0.5) * LINE)?;
        }
        Ok(())
    })
}

fn scale(canvas: &Canvas<'_>, last: f64) -> Result<(), DrawError> {
    for tick in [-1.0, -0.5, 0.0, 0.5, 1.0] {
        let color = if tick == 0.0 { AXIS } else { GRID };
        line(canvas, &[(x(tick), TOP), (x(tick), last)], color, 1.0)?;
        let text = match tick {
            -1.0 => "-1 and less".to_owned(),
            1.0 => "+1 and more".into(),
            0.0 => "0".into(),
            tick => format!("{tick:+}"),
        };
        let small = Type::new(11.0).color(MUTED).anchor(HPos::Center);
        write(canvas, &text, (x(tick), last + 12.0), small)?;
    }
    Ok(())
}

fn section(canvas: &Canvas<'_>, title: &str, rows: &[&Row], y: f64) -> Result<(), DrawError> {
    write(canvas, title, (SCALE.0 - 14.0, y), Type::new(12.5).anchor(HPos::Right))?;
    let radius = if rows.len() > 40 { 2.6 } else { 4.0 };
    for (place, row) in rows.iter().enumerate() {
        let Some(error) = row.error else { continue };
        // Spread over the line in an order that follows from nothing but the place.
        let at = (x(error), y + ((place * 7 % 11) as f64 - 5.0) * 1.8);
        match (row.kind, row.wrong_sign) {
            (_, Some(true)) => disc(canvas, at, radius, ZONAL)?,
            (Kind::Predicted | Kind::InView, _) => disc(canvas, at, radius, CLUSTER)?,
            (Kind::Fitted | Kind::Base, _) => ring(canvas, at, radius, BASE)?,
        }
    }
    let skill = Skill::of(rows.iter().copied()).and_then(|skill| skill.over_no_change());
    let text = skill.map_or("-".into(), |skill| format!("{skill:+.2}"));
    write(canvas, &text, (WIDTH - 14.0, y), Type::new(12.5).anchor(HPos::Right))
}

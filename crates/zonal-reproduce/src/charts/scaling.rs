//! Scores and gains by the number of tasks: published points, simulated lines.
//!
//! ```
//! use zonal_reproduce::{charts::scaling, sections::SECTIONS};
//!
//! let section = SECTIONS.last().expect("there are sections");
//! assert!(scaling::scores(section, &[], &[(1, 6e5), (2, 1.1e6)])?.svg().contains("Zonal"));
//! # Ok::<(), zonal_cli::error::LabError>(())
//! ```

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::palette::{AXIS, GRID, MUTED, PAPER, kernel_text, of_kernel};
use super::{
    Canvas, Chart, DrawError, FINE, Type, disc, line, px, ring, round_step, spread, write,
};
use crate::rows::Row;
use crate::sections::Section;
use zonal_cli::error::LabError;

const SIZE: (f64, f64) = (760.0, 440.0);
/// Left, right, top and bottom of the plot.
const PLOT: (f64, f64, f64, f64) = (58.0, 628.0, 72.0, 396.0);
/// The kernels of the table, in the order they are drawn in.
const KERNELS: [&str; 3] = ["base", "zone_lock_series", "huge_pcp_batch"];

/// The points of one kernel.
struct Series {
    kernel: &'static str,
    published: Vec<(f64, f64)>,
    simulated: Vec<(f64, f64)>,
}

/// A chart of scores, in millions of faults a second.
///
/// # Errors
///
/// [`LabError::Chart`].
pub fn scores(section: &Section, rows: &[&Row], zonal: &[(u32, f64)]) -> Result<Chart, LabError> {
    let of = |kernel: &'static str| {
        let rows = rows.iter().filter(move |row| row.kernel == kernel);
        let rows = rows.filter_map(|row| Some((f64::from(row.tasks?), row)));
        Series {
            kernel,
            published: rows.clone().map(|(tasks, row)| (tasks, row.published / 1e6)).collect(),
            simulated: rows
                .filter_map(|(tasks, row)| Some((tasks, row.simulated? / 1e6)))
                .collect(),
        }
    };
    let mut series: Vec<Series> = KERNELS.into_iter().map(of).collect();
    series.push(Series {
        kernel: "Zonal",
        published: Vec::new(),
        simulated: zonal.iter().map(|(tasks, score)| (f64::from(*tasks), score / 1e6)).collect(),
    });
    draw(section.id, section.title, "million faults a second", &series)
}

/// A chart of changes against the base, in percent.
///
/// # Errors
///
/// [`LabError::Chart`].
pub fn gains(section: &Section, rows: &[&Row], zonal: &[(u32, f64)]) -> Result<Chart, LabError> {
    let of = |kernel: &'static str| {
        let rows = rows.iter().filter(move |row| row.kernel == kernel);
        let rows = rows.filter_map(|row| Some((f64::from(row.tasks?), row)));
        Series {
            kernel,
            published: rows
                .clone()
                .filter_map(|(tasks, row)| Some((tasks, row.published_change?)))
                .collect(),
            simulated: rows
                .filter_map(|(tasks, row)| Some((tasks, row.simulated_change?)))
                .collect(),
        }
    };
    let mut series: Vec<Series> = KERNELS[1..].iter().map(|kernel| of(kernel)).collect();
    let gain = |(tasks, score): &(u32, f64)| {
        let is = |row: &&&Row| row.kernel == "base" && row.tasks == Some(*tasks);
        let base = rows.iter().find(is)?.simulated.filter(|base| *base > 0.0)?;
        Some((f64::from(*tasks), (score / base - 1.0) * 100.0))
    };
    let simulated = zonal.iter().filter_map(gain).collect();
    series.push(Series { kernel: "Zonal", published: Vec::new(), simulated });
    let name = format!("{}-gain", section.id);
    let title = format!("{}: gain over base", section.title);
    draw(&name, &title, "% more faults than base", &series)
}

/// The lowest and the highest value shown, and the step between lines.
fn range(series: &[Series]) -> (f64, f64, f64) {
    let points = series.iter().flat_map(|it| it.published.iter().chain(&it.simulated));
    let extend = |(low, high): (f64, f64), (_, y): &(f64, f64)| (low.min(*y), high.max(*y));
    let (low, high) = points.fold((0.0, 0.0), extend);
    let room = ((high - low) * 0.04).max(f64::MIN_POSITIVE);
    (if low < 0.0 { low - room } else { 0.0 }, high + room, round_step(high - low, 5))
}

fn draw(name: &str, title: &str, unit: &str, series: &[Series]) -> Result<Chart, LabError> {
    let (low, high, step) = range(series);
    Chart::draw(name, title, (SIZE.0 as u32, SIZE.1 as u32), |canvas| {
        write(canvas, title, (16.0, 20.0), Type::new(15.0).bold())?;
        legend(canvas, unit)?;
        // Everything within the axes goes through the library's own coordinates.
        let area = canvas.clone().shrink(
            (px(PLOT.0), px(PLOT.2)),
            (px(PLOT.1 - PLOT.0) as u32, px(PLOT.3 - PLOT.2) as u32),
        );
        let mut plot = ChartBuilder::on(&area).build_cartesian_2d(0.0..40.5, low..high)?;
        let mut tick = (low / step).ceil() * step;
        while tick <= high {
            let zero = tick.abs() < step / 2.0;
            let color = if zero { AXIS } else { GRID };
            let style = color.stroke_width(FINE as u32);
            plot.draw_series([PathElement::new([(0.0, tick), (40.5, tick)], style)])?;
            let y = PLOT.3 - (tick - low) / (high - low) * (PLOT.3 - PLOT.2);
            let text = if step < 1.0 && !zero {
                format!("{tick:.1}")
            } else {
                format!("{:.0}", if zero { 0.0 } else { tick })
            };
            let small = Type::new(11.5).color(MUTED).anchor(HPos::Right);
            write(canvas, &text, (PLOT.0 - 8.0, y), small)?;
            tick += step;
        }
        tasks_axis(canvas)?;
        for it in series {
            let color = of_kernel(it.kernel);
            let points = it.published.iter().map(|at| Circle::new(*at, px(2.9), color.filled()));
            plot.draw_series(points)?;
            let holes = it.published.iter().map(|at| Circle::new(*at, px(1.7), PAPER.filled()));
            plot.draw_series(holes)?;
        }
        for it in series {
            let style = of_kernel(it.kernel).stroke_width(px(1.8) as u32);
            plot.draw_series(LineSeries::new(it.simulated.iter().copied(), style))?;
        }
        labels(canvas, series, (low, high))
    })
}

fn legend(canvas: &Canvas<'_>, unit: &str) -> Result<(), DrawError> {
    let small = Type::new(12.0).color(MUTED);
    write(canvas, unit, (16.0, 48.0), small)?;
    ring(canvas, (PLOT.1 - 176.0, 48.0), 3.4, MUTED)?;
    write(canvas, "published", (PLOT.1 - 166.0, 48.0), small)?;
    line(canvas, &[(PLOT.1 - 92.0, 48.0), (PLOT.1 - 70.0, 48.0)], MUTED, 1.8)?;
    write(canvas, "simulated", (PLOT.1 - 64.0, 48.0), small)
}

/// The numbers of tasks, with what changes at 10 and at 20 of them.
fn tasks_axis(canvas: &Canvas<'_>) -> Result<(), DrawError> {
    let x = |tasks: f64| PLOT.0 + tasks / 40.5 * (PLOT.1 - PLOT.0);
    let small = Type::new(11.5).color(MUTED).anchor(HPos::Center);
    for tasks in [1.0, 10.0, 20.0, 30.0, 40.0] {
        line(canvas, &[(x(tasks), PLOT.3), (x(tasks), PLOT.3 + 4.0)], AXIS, 1.0)?;
        write(canvas, &format!("{tasks}"), (x(tasks), PLOT.3 + 14.0), small)?;
    }
    write(canvas, "tasks", (f64::midpoint(PLOT.0, PLOT.1), PLOT.3 + 32.0), small)
}

/// Names beside the last points, apart from each other.
fn labels(
    canvas: &Canvas<'_>,
    series: &[Series],
    (low, high): (f64, f64),
) -> Result<(), DrawError> {
    let y = |value: f64| PLOT.3 - (value - low) / (high - low) * (PLOT.3 - PLOT.2);
    let ends: Vec<(&str, f64)> = series
        .iter()
        .filter_map(|it| {
            let last = it.simulated.last().or(it.published.last())?;
            Some((it.kernel, y(last.1)))
        })
        .collect();
    let places: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
    let x = PLOT.0 + 40.0 / 40.5 * (PLOT.1 - PLOT.0);
    for ((kernel, end), place) in ends.iter().zip(spread(&places, 17.0)) {
        let color = of_kernel(kernel);
        line(canvas, &[(x + 4.0, *end), (PLOT.1 + 14.0, place)], AXIS, 0.8)?;
        disc(canvas, (PLOT.1 + 17.0, place), 3.0, color)?;
        write(
            canvas,
            &kernel_text(kernel),
            (PLOT.1 + 25.0, place),
            Type::new(12.5).color(color).bold(),
        )?;
    }
    Ok(())
}

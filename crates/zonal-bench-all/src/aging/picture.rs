//! Pageblocks by free frames over the rounds, a panel a subject.

use std::sync::LazyLock;

use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use zonal_bench::aging::Spec;
use zonal_bench::aging::shadow::CLASSES;
use zonal_cli::error::LabError;

use super::Line;

const PANEL: (u32, u32) = (460, 300);
const FAMILY: &str = "sans-serif";

static FONT: LazyLock<bool> =
    LazyLock::new(|| register_font(FAMILY, FontStyle::Normal, ttf_noto_sans::REGULAR).is_ok());

/// What a class is called.
fn name(class: usize) -> String {
    match class {
        0 => "full".into(),
        at if at == CLASSES - 1 => "whole".into(),
        at => format!("{} to {} free", ((at - 1) * 64).max(1), at * 64 - 1),
    }
}

/// Full dark, whole light, what is between from red to yellow: the pageblocks that cost something.
fn colour(class: usize) -> RGBColor {
    match class {
        0 => RGBColor(52, 73, 94),
        at if at == CLASSES - 1 => RGBColor(171, 213, 235),
        at => {
            let part = (at - 1) as f64 / (CLASSES - 3) as f64;
            RGBColor(214 + (30.0 * part) as u8, 69 + (140.0 * part) as u8, 65)
        }
    }
}

/// Draws the runs of `spec`.
pub(super) fn draw(lines: &[Line], spec: &Spec) -> Result<String, LabError> {
    let failed = |error: String| LabError::Chart { name: "aging".into(), why: error };
    if !*FONT {
        return Err(failed("the font cannot be read".into()));
    }
    let shown: Vec<&Line> = lines.iter().filter(|line| line.spec == *spec).collect();
    let mut svg = String::new();
    {
        let width = PANEL.0 * shown.len().max(1) as u32;
        let canvas = SVGBackend::with_string(&mut svg, (width, PANEL.1)).into_drawing_area();
        canvas.fill(&WHITE).map_err(|error| failed(error.to_string()))?;
        for (line, area) in shown.iter().zip(canvas.split_evenly((1, shown.len().max(1)))) {
            panel(line, &area).map_err(|error| failed(error.to_string()))?;
        }
        canvas.present().map_err(|error| failed(error.to_string()))?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn panel<'a>(line: &Line, area: &Area<'a>) -> Result<(), Box<dyn std::error::Error + 'a>> {
    let (rounds, blocks) = (line.row.by_free.len() as u32, line.row.blocks as u32);
    let spec = &line.spec;
    let title = format!("{}: {}, {} % full, {} CPUs", line.subject, spec.mix, spec.fill, spec.cpus);
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FAMILY, 14))
        .margin(8)
        .x_label_area_size(32)
        .y_label_area_size(44)
        .build_cartesian_2d(0..rounds, 0..blocks)?;
    let labels = (FAMILY, 11).into_text_style(area);
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc("round")
        .y_desc("pageblocks")
        .label_style(labels.clone())
        .draw()?;
    for class in 0..CLASSES {
        let bars = line.row.by_free.iter().zip(0..).map(|(classes, round)| {
            let below: u32 = classes[..class].iter().sum();
            let place = [(round, below), (round + 1, below + classes[class])];
            Rectangle::new(place, colour(class).filled())
        });
        chart.draw_series(bars)?.label(name(class)).legend(move |(x, y)| {
            Rectangle::new([(x, y - 4), (x + 10, y + 4)], colour(class).filled())
        });
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .label_font(labels)
        .draw()?;
    Ok(())
}

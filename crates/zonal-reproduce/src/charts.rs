//! The charts: drawn once, as SVG, and rasterised from that for PNG.
//!
//! ```
//! use zonal_reproduce::charts::Chart;
//!
//! let chart = Chart::draw("empty", "An empty chart", (300, 100), |_| Ok(()))?;
//! assert!(chart.svg().starts_with("<svg"));
//! assert!(chart.png()?.starts_with(b"\x89PNG"));
//! # Ok::<(), zonal_cli::error::LabError>(())
//! ```

pub mod cycles;
pub mod dumbbell;
pub mod errors;
pub mod palette;
pub mod scaling;

use std::sync::{Arc, LazyLock};

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};
use resvg::{tiny_skia, usvg};

use super::Report;
use super::facts::Table;
use super::sections::SECTIONS;
use palette::{INK, PAPER};
use zonal_cli::error::LabError;

/// Pixels drawn for each pixel shown: the drawing has whole pixels only, and curves of a few
/// hundred of them would show it.
pub const FINE: i32 = 8;

/// Pixels of a PNG for each pixel shown.
const PNG_SCALE: f32 = 2.0;

/// The family charts are set in where the reader's own is not used instead.
const FAMILY: &str = "sans-serif";

/// What charts are drawn on.
pub type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Why a chart could not be drawn.
pub type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// A chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// Its name in file names and links.
    pub name: String,
    /// What it shows.
    pub title: String,
    svg: String,
    size: (u32, u32),
}

/// The fonts, registered with the drawing library on first use; whether that worked.
static FONTS: LazyLock<bool> = LazyLock::new(|| {
    let regular = register_font(FAMILY, FontStyle::Normal, ttf_noto_sans::REGULAR);
    let bold = register_font(FAMILY, FontStyle::Bold, ttf_noto_sans::BOLD);
    regular.is_ok() && bold.is_ok()
});

impl Chart {
    /// A chart of `size` pixels, which `draw` draws on paper.
    ///
    /// # Errors
    ///
    /// [`LabError::Chart`].
    pub fn draw(
        name: &str,
        title: &str,
        size: (u32, u32),
        draw: impl FnOnce(&Canvas<'_>) -> Result<(), DrawError>,
    ) -> Result<Self, LabError> {
        let failed = |why: String| LabError::Chart { name: name.into(), why };
        if !*FONTS {
            return Err(failed("its font cannot be read".into()));
        }
        let mut drawn = String::new();
        {
            let fine = (size.0 * FINE as u32, size.1 * FINE as u32);
            let canvas = SVGBackend::with_string(&mut drawn, fine).into_drawing_area();
            let result =
                canvas.fill(&PAPER).and_then(|()| draw(&canvas)).and_then(|()| canvas.present());
            result.map_err(|error| failed(error.to_string()))?;
        }
        let body = drawn.split_once('>').map_or("", |(_, body)| body);
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" \
             height=\"{}\" role=\"img\" aria-label=\"{}\">{body}",
            size.0 * FINE as u32,
            size.1 * FINE as u32,
            size.0,
            size.1,
            title.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;"),
        );
        Ok(Self { name: name.into(), title: title.into(), svg, size })
    }

    /// It as an SVG document.
    #[must_use]
    pub fn svg(&self) -> &str {
        &self.svg
    }

    /// It as an element of an HTML document, where the name space goes without saying.
    #[must_use]
    pub fn inline(&self) -> String {
        self.svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
    }

    /// It as a PNG of twice the resolution.
    ///
    /// # Errors
    ///
    /// [`LabError::Chart`].
    pub fn png(&self) -> Result<Vec<u8>, LabError> {
        let failed = |why: String| LabError::Chart { name: self.name.clone(), why };
        let mut fonts = usvg::fontdb::Database::new();
        fonts.load_font_data(ttf_noto_sans::REGULAR.to_vec());
        fonts.load_font_data(ttf_noto_sans::BOLD.to_vec());
        fonts.set_sans_serif_family("Noto Sans");
        let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
        let tree =
            usvg::Tree::from_str(&self.svg, &options).map_err(|error| failed(error.to_string()))?;
        let pixels = |size: u32| (size as f32 * PNG_SCALE) as u32;
        let mut pixmap = tiny_skia::Pixmap::new(pixels(self.size.0), pixels(self.size.1))
            .ok_or_else(|| failed("it has no size".into()))?;
        let scale = tiny_skia::Transform::from_scale(PNG_SCALE, PNG_SCALE);
        resvg::render(&tree, scale, &mut pixmap.as_mut());
        pixmap.encode_png().map_err(|error| failed(error.to_string()))
    }
}

/// All charts that `report` has something for: of all errors, of where cycles go, and of each
/// section.
///
/// # Errors
///
/// [`LabError::Chart`].
pub fn all(report: &Report) -> Result<Vec<Chart>, LabError> {
    let mut charts = vec![errors::chart(report)?];
    if !report.cycles.is_empty() {
        charts.push(cycles::chart(&report.cycles)?);
    }
    for section in &SECTIONS {
        let rows = section.rows(&report.rows);
        // Rates of disks have tables only.
        if rows.is_empty() || section.table == Table::Tiobench {
            continue;
        }
        if rows.iter().any(|row| row.tasks.is_some()) {
            let zonal = report.zonal.iter().find(|(workload, _)| *workload == section.workload);
            let zonal = zonal.map_or(&[][..], |(_, curve)| curve);
            charts.push(scaling::scores(section, &rows, zonal)?);
            charts.push(scaling::gains(section, &rows, zonal)?);
        } else if rows.iter().any(|row| row.simulated.is_some()) {
            charts.push(dumbbell::chart(section, &rows)?);
        }
    }
    Ok(charts)
}

/// Shown pixels in fine ones.
#[must_use]
pub fn px(pixels: f64) -> i32 {
    (pixels * f64::from(FINE)).round() as i32
}

/// How text is set.
#[derive(Clone, Copy)]
pub struct Type {
    /// Size in pixels shown.
    pub size: f64,
    /// Whether it is bold.
    pub bold: bool,
    /// Colour.
    pub color: RGBColor,
    /// Which point of it is given.
    pub anchor: HPos,
}

impl Type {
    /// Text of `size`, from the left, in the colour of ink.
    #[must_use]
    pub const fn new(size: f64) -> Self {
        Self { size, bold: false, color: INK, anchor: HPos::Left }
    }

    /// The same in another colour.
    #[must_use]
    pub const fn color(self, color: RGBColor) -> Self {
        Self { color, ..self }
    }

    /// The same in bold.
    #[must_use]
    pub const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    /// The same, given by another point.
    #[must_use]
    pub const fn anchor(self, anchor: HPos) -> Self {
        Self { anchor, ..self }
    }

    /// For the drawing library, whose sizes are of lines.
    #[must_use]
    pub fn style(self) -> TextStyle<'static> {
        let weight = if self.bold { FontStyle::Bold } else { FontStyle::Normal };
        let size = self.size * f64::from(FINE) * 1.24;
        let mut style = TextStyle::from((FAMILY, size, weight).into_font());
        style.color = self.color.to_backend_color();
        style.pos = Pos::new(self.anchor, VPos::Center);
        style
    }
}

/// Writes `text` with its middle at the height `at.1`, in pixels shown.
///
/// # Errors
///
/// Those of the drawing library.
pub fn write(canvas: &Canvas<'_>, text: &str, at: (f64, f64), with: Type) -> Result<(), DrawError> {
    // What the library takes for the middle of a line is a little above that of its digits.
    canvas.draw(&Text::new(text.to_owned(), (px(at.0), px(at.1 + 0.9)), with.style()))
}

/// A line between points in pixels shown.
///
/// # Errors
///
/// Those of the drawing library.
pub fn line(
    canvas: &Canvas<'_>,
    points: &[(f64, f64)],
    color: RGBColor,
    width: f64,
) -> Result<(), DrawError> {
    let points: Vec<(i32, i32)> = points.iter().map(|(x, y)| (px(*x), px(*y))).collect();
    canvas.draw(&PathElement::new(points, color.stroke_width(px(width) as u32)))
}

/// A filled disc in pixels shown.
///
/// # Errors
///
/// Those of the drawing library.
pub fn disc(
    canvas: &Canvas<'_>,
    at: (f64, f64),
    radius: f64,
    color: RGBColor,
) -> Result<(), DrawError> {
    canvas.draw(&Circle::new((px(at.0), px(at.1)), px(radius), color.filled()))
}

/// A ring on paper in pixels shown.
///
/// # Errors
///
/// Those of the drawing library.
pub fn ring(
    canvas: &Canvas<'_>,
    at: (f64, f64),
    radius: f64,
    color: RGBColor,
) -> Result<(), DrawError> {
    disc(canvas, at, radius, color)?;
    disc(canvas, at, radius - 1.4, PAPER)
}

/// Moves labels apart so that none is nearer than `gap` to the next, as little as that takes;
/// gives each its new place, in the order they came in.
///
/// ```
/// use zonal_reproduce::charts::spread;
///
/// assert_eq!(spread(&[10.0, 50.0, 12.0], 10.0), [6.0, 50.0, 16.0]);
/// ```
#[must_use]
pub fn spread(places: &[f64], gap: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|a, b| places[*a].total_cmp(&places[*b]));
    // Runs of labels that touch: each has the middle of its labels' places in its own middle.
    let mut runs: Vec<(f64, usize)> = Vec::new();
    for index in &order {
        runs.push((places[*index], 1));
        while let [.., (before, many), (middle, few)] = runs[..] {
            let (half_before, half) = ((many - 1) as f64 * gap / 2.0, (few - 1) as f64 * gap / 2.0);
            if middle - half - (before + half_before) >= gap {
                break;
            }
            let together = many + few;
            let mean = (before * many as f64 + middle * few as f64) / together as f64;
            runs.truncate(runs.len() - 2);
            runs.push((mean, together));
        }
    }
    let mut spread = vec![0.0; places.len()];
    let mut order = order.into_iter();
    for (middle, labels) in runs {
        for (place, index) in order.by_ref().take(labels).enumerate() {
            spread[index] = middle + (place as f64 - (labels - 1) as f64 / 2.0) * gap;
        }
    }
    spread
}

/// A round step that divides `range` into about `steps`.
///
/// ```
/// assert_eq!(zonal_reproduce::charts::round_step(90.0, 5), 20.0);
/// ```
#[must_use]
pub fn round_step(range: f64, steps: u32) -> f64 {
    if range.is_nan() || range <= 0.0 {
        return 1.0;
    }
    let rough = range / f64::from(steps.max(1));
    let power = 10f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0].into_iter().find(|digit| digit * power >= rough * 0.999);
    digit.unwrap_or(10.0) * power
}

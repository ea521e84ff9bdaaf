//! Where the cycles of a machine go, a bar a preset.
//!
//! ```
//! use zonal_reproduce::{Cycles, charts::cycles};
//!
//! let parts = [42.0, 35.0, 5.0, 1.0, 17.0];
//! let bar = Cycles { label: "base".into(), parts, faults_per_s: Some(1e7) };
//! assert!(cycles::chart(&[bar])?.svg().contains("42"));
//! # Ok::<(), zonal_cli::error::LabError>(())
//! ```

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::palette::{INK, LRU, MUTED, OTHER, PAPER, WORK, ZONE_ALLOC, ZONE_FREE};
use super::{Chart, Type, px, write};
use crate::Cycles;
use zonal_cli::error::LabError;

const WIDTH: f64 = 860.0;
const SCALE: (f64, f64) = (190.0, 760.0);
const LINE: f64 = 32.0;
const TOP: f64 = 66.0;

/// What the parts are, with their colours and that of text on them.
const PARTS: [(&str, RGBColor, RGBColor); 5] = [
    ("zone lock, allocating", ZONE_ALLOC, PAPER),
    ("zone lock, freeing", ZONE_FREE, INK),
    ("LRU lock", LRU, PAPER),
    ("other locks", OTHER, INK),
    ("work", WORK, INK),
];

/// The chart.
///
/// # Errors
///
/// [`LabError::Chart`].
pub fn chart(bars: &[Cycles]) -> Result<Chart, LabError> {
    let title = "Where the cycles of 112 CPUs go";
    let height = TOP + bars.len() as f64 * LINE + 14.0;
    Chart::draw("where-the-cycles-go", title, (WIDTH as u32, height as u32), |canvas| {
        write(canvas, title, (16.0, 20.0), Type::new(15.0).bold())?;
        let small = Type::new(12.0).color(MUTED);
        let mut left = SCALE.0;
        for (name, color, _) in PARTS {
            let square = [(px(left), px(37.0)), (px(left + 11.0), px(48.0))];
            canvas.draw(&Rectangle::new(square, color.filled()))?;
            write(canvas, name, (left + 16.0, 43.0), small)?;
            // About as wide as it is in any font.
            left += 34.0 + name.chars().count() as f64 * 6.4;
        }
        write(canvas, "faults / s", (WIDTH - 14.0, 43.0), small.anchor(HPos::Right))?;
        for (place, bar) in bars.iter().enumerate() {
            let y = TOP + (place as f64 + 0.5) * LINE;
            let label = bar.label.replace('_', " ");
            let name = Type::new(12.5).anchor(HPos::Right);
            write(canvas, &label, (SCALE.0 - 12.0, y), name)?;
            let x = |percent: f64| SCALE.0 + percent / 100.0 * (SCALE.1 - SCALE.0);
            let mut from = 0.0;
            for (part, (_, color, on_it)) in bar.parts.iter().zip(PARTS) {
                let to = from + part;
                if *part > 0.05 {
                    let corners = [
                        (px(x(from)), px(y - 11.0)),
                        (px(x(to) - 1.0).max(px(x(from))), px(y + 11.0)),
                    ];
                    canvas.draw(&Rectangle::new(corners, color.filled()))?;
                }
                if *part >= 5.0 {
                    let middle = Type::new(12.0).color(on_it).anchor(HPos::Center);
                    write(
                        canvas,
                        &format!("{part:.0} %"),
                        (x(f64::midpoint(from, to)), y),
                        middle,
                    )?;
                }
                from = to;
            }
            let faults = bar.faults_per_s.map(|it| format!("{:.1} M", it / 1e6));
            let value = Type::new(12.5).anchor(HPos::Right);
            write(canvas, &faults.unwrap_or_default(), (WIDTH - 14.0, y), value)?;
        }
        Ok(())
    })
}

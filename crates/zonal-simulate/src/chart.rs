//! A small chart of how a figure changes with the number of tasks, in characters.
//!
//! ```
//! use zonal_simulate::chart::{Line, chart};
//!
//! let lines = [Line { name: "Zonal".into(), values: vec![Some(1.0), Some(2.0), None] }];
//! let text = chart("faults", "1/s", &[1, 2, 4], &lines);
//! assert!(text.contains("Zonal  ▄ █ ·"), "{text}");
//! ```

use core::fmt::Write as _;

/// Heights, an eighth each.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What one preset shows.
#[derive(Clone, Debug)]
pub struct Line {
    /// The preset.
    pub name: String,
    /// The figure with each number of tasks, where there is one.
    pub values: Vec<Option<f64>>,
}

/// Bars for each line, with all of the same height where the values are the same. `·` is nothing.
#[must_use]
pub fn chart(figure: &str, unit: &str, tasks: &[u32], lines: &[Line]) -> String {
    let most = lines.iter().flat_map(|line| &line.values).flatten().copied().fold(0.0, f64::max);
    let widest = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let width = tasks.last().map_or(1, |most| most.to_string().len());
    let mut text = format!("{figure} by tasks; █ is {}\n", shown(most, unit));
    for line in lines {
        let _ = write!(text, "{:<widest$} ", line.name);
        for value in &line.values {
            let bar = value.map_or('·', |value| bar(value, most));
            let _ = write!(text, " {bar:>width$}");
        }
        text.push('\n');
    }
    let _ = write!(text, "{:<widest$} ", "tasks");
    for tasks in tasks {
        let _ = write!(text, " {tasks:>width$}");
    }
    text
}

fn bar(value: f64, most: f64) -> char {
    let part = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    BARS[((part * 8.0).ceil() as usize).clamp(1, 8) - 1]
}

/// A value in three digits or so.
fn shown(value: f64, unit: &str) -> String {
    let (scaled, prefix) = match value {
        large if large >= 1e9 => (large / 1e9, " G"),
        large if large >= 1e6 => (large / 1e6, " M"),
        large if large >= 1e4 => (large / 1e3, " k"),
        small => (small, " "),
    };
    // 3 M/s, not 3 M1/s.
    let unit = unit.strip_prefix('1').unwrap_or(unit);
    format!("{scaled:.2}{prefix}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_values() {
        assert_eq!([0.0, 1.0, 1.1, 8.0].map(|value| bar(value, 8.0)), ['▁', '▁', '▂', '█']);
        assert_eq!(bar(0.0, 0.0), '▁');
    }

    #[test]
    fn all_lines_have_one_scale_and_their_tasks_below() {
        let line = |name: &str, values: [f64; 2]| Line {
            name: name.into(),
            values: values.map(Some).into(),
        };
        let lines = [line("a", [1e6, 8e6]), line("longer", [1e6, 1e6])];
        let text = chart("faults per s", "1/s", &[8, 112], &lines);
        let expected = "faults per s by tasks; █ is 8.00 M/s\na         ▁   █\nlonger    ▁   ▁\n\
                        tasks     8 112";
        assert_eq!(text, expected);
    }
}

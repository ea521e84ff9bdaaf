//! Hit ratios as a table and a chart.
//!
//! ```
//! use zonal_cachetrace::show::{Row, chart};
//! use zonal_cachetrace::simulate::Policy;
//! let rows = [
//!     Row { bytes: 1 << 20, ratios: vec![0.125, 0.5] },
//!     Row { bytes: 2 << 20, ratios: vec![0.25, 1.0] },
//! ];
//! let text = chart(&[Policy::TwoLists, Policy::Opt], &rows);
//! assert!(text.contains("optimum       ▄     █"), "{text}");
//! ```

use core::fmt::Write as _;

use zonal_cli::size::human;
use zonal_cli::table::Table;

use crate::simulate::Policy;

/// What the policies hit with a cache of one size.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The size.
    pub bytes: u64,
    /// The part of accesses that were hits, by policy.
    pub ratios: Vec<f64>,
}

/// Heights, an eighth each.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A row for each size, a column for each policy.
#[must_use]
pub fn table(policies: &[Policy], rows: &[Row]) -> Table {
    let mut table = Table::new(1);
    table.number("cache", "");
    policies.iter().for_each(|policy| table.number(policy.to_string(), "%"));
    for row in rows {
        let ratios = row.ratios.iter().map(|ratio| format!("{:.2}", ratio * 100.0));
        table.row([human(row.bytes)].into_iter().chain(ratios));
    }
    table
}

/// A line of bars for each policy over the sizes; a full one is all hits.
#[must_use]
pub fn chart(policies: &[Policy], rows: &[Row]) -> String {
    let sizes: Vec<String> = rows.iter().map(|row| human(row.bytes)).collect();
    let width = sizes.iter().map(|size| size.chars().count()).max().unwrap_or(1);
    let widest = policies.iter().map(|policy| policy.to_string().len()).max().unwrap_or(0);
    let mut text = "hits by size of the cache; █ is all\n".to_owned();
    for (at, policy) in policies.iter().enumerate() {
        let _ = write!(text, "{policy:<widest$}");
        for row in rows {
            let eighths = (row.ratios[at].clamp(0.0, 1.0) * 8.0).round() as usize;
            let _ = write!(text, " {:>width$}", BARS[eighths]);
        }
        text.push('\n');
    }
    let _ = write!(text, "{:<widest$}", "");
    sizes.iter().for_each(|size| {
        let _ = write!(text, " {size:>width$}");
    });
    text
}

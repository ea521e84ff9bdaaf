//! Tables that fit the terminal.
//!
//! Heads are broken between words, long texts within their cells. Columns that do not fit beside
//! the others stand below them, in a block of their own with the key columns repeated: a number is
//! never broken.
//!
//! ```
//! use zonal_cli::table::Table;
//!
//! let mut table = Table::new(1);
//! table.text("subject");
//! table.number("median", "ns");
//! table.row(["Zonal".to_owned(), "5.83".to_owned()]);
//! let text = table.fit(80);
//! assert_eq!(text, "subject  median\n             ns\n───────  ──────\nZonal      5.83");
//! ```

use core::fmt;

use crate::terminal::{self, broken};

/// Spaces between columns.
const GAP: usize = 2;
/// The widest that a column of texts is; longer ones are broken.
const WIDEST: usize = 36;
/// The narrowest that such a column is made where there is no room, if its words are that short.
const NARROWEST: usize = 14;

#[derive(Clone, Debug)]
struct Column {
    head: String,
    unit: String,
    is_number: bool,
}

/// A table for people.
#[derive(Clone, Debug)]
pub struct Table {
    keys: usize,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// A column of a block, as wide as it is shown.
struct Shown {
    at: usize,
    width: usize,
}

impl Table {
    /// A table without columns, of which the first `keys` will say what a row is about.
    #[must_use]
    pub const fn new(keys: usize) -> Self {
        Self { keys, columns: Vec::new(), rows: Vec::new() }
    }

    /// Adds a column of texts.
    pub fn text(&mut self, head: impl Into<String>) {
        let (head, unit) = (head.into(), String::new());
        self.columns.push(Column { head, unit, is_number: false });
    }

    /// Adds a column of numbers in `unit`, which may be empty.
    pub fn number(&mut self, head: impl Into<String>, unit: impl Into<String>) {
        let (head, unit) = (head.into(), unit.into());
        self.columns.push(Column { head, unit, is_number: true });
    }

    /// Adds a row: a cell for each column, in their order.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether it has no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table in lines of at most `width` characters, if its keys and any one column fit.
    #[must_use]
    pub fn fit(&self, width: usize) -> String {
        let blocks = self.blocks(width);
        let texts: Vec<String> = blocks.iter().map(|block| self.block(block)).collect();
        texts.join("\n\n")
    }

    fn cell(&self, row: &[String], at: usize) -> String {
        row.get(at).cloned().unwrap_or_default()
    }

    /// How wide a column wants to be.
    fn natural(&self, at: usize) -> usize {
        let column = &self.columns[at];
        let words = column.head.split(' ').chain([&*column.unit]).map(length).max();
        let cells = self.rows.iter().map(|row| length(&self.cell(row, at))).max();
        let cells = cells.unwrap_or(0);
        let cells = if column.is_number { cells } else { cells.min(WIDEST) };
        cells.max(words.unwrap_or(0))
    }

    /// The columns of each block: those that have a cell.
    fn blocks(&self, width: usize) -> Vec<Vec<Shown>> {
        let is_used = |at: &usize| self.rows.iter().any(|row| !self.cell(row, *at).is_empty());
        let shown = |at| Shown { at, width: self.natural(at) };
        let keys = || (0..self.keys.min(self.columns.len())).filter(is_used).map(shown);
        let mut blocks = vec![keys().collect::<Vec<_>>()];
        let own = blocks[0].len();
        for column in (self.keys..self.columns.len()).filter(is_used).map(shown) {
            let Some(block) = blocks.last_mut() else { break };
            let least: usize = block.iter().chain([&column]).map(|it| self.least(it) + GAP).sum();
            if least.saturating_sub(GAP) > width && block.len() > own {
                blocks.push(keys().chain([column]).collect());
            } else {
                block.push(column);
            }
        }
        for block in &mut blocks {
            self.squeeze(block, width);
        }
        blocks
    }

    /// Takes from the widest texts what does not fit.
    fn squeeze(&self, block: &mut [Shown], width: usize) {
        while total(block) > width {
            let wide = block.iter_mut().filter(|it| it.width > self.least(it));
            match wide.max_by_key(|it| it.width) {
                Some(widest) => widest.width -= 1,
                None => return,
            }
        }
    }

    /// How narrow a column can be made: numbers and words are not broken.
    fn least(&self, shown: &Shown) -> usize {
        if self.columns[shown.at].is_number {
            return shown.width;
        }
        let cells = self.rows.iter().flat_map(|row| row.get(shown.at));
        let words = cells.flat_map(|cell| cell.split(' ')).map(length).max().unwrap_or(0);
        shown.width.min(words.max(NARROWEST))
    }

    fn block(&self, block: &[Shown]) -> String {
        let mut lines = Vec::new();
        let heads = block.iter().map(|shown| {
            let column = &self.columns[shown.at];
            let mut lines = broken(&column.head, shown.width);
            lines.extend((!column.unit.is_empty()).then(|| column.unit.clone()));
            lines
        });
        let heads: Vec<Vec<String>> = heads.collect();
        lines.extend(self.lines(block, &heads).into_iter().map(|line| terminal::faint(&line)));
        let rule = block.iter().map(|shown| vec!["─".repeat(shown.width)]).collect::<Vec<_>>();
        lines.extend(self.lines(block, &rule));
        for row in &self.rows {
            let cells = block.iter().map(|shown| broken(&self.cell(row, shown.at), shown.width));
            lines.extend(self.lines(block, &cells.collect::<Vec<_>>()));
        }
        lines.join("\n")
    }

    /// The lines of a row of cells, each of which has lines.
    fn lines(&self, block: &[Shown], cells: &[Vec<String>]) -> Vec<String> {
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let line = |number: usize| {
            let mut line = String::new();
            for (shown, cell) in block.iter().zip(cells) {
                let text = cell.get(number).map_or("", String::as_str);
                let room = " ".repeat(shown.width.saturating_sub(length(text)));
                let is_number = self.columns[shown.at].is_number;
                let parts = if is_number { [&*room, text] } else { [text, &*room] };
                line.extend(parts);
                line.push_str(&" ".repeat(GAP));
            }
            line.truncate(line.trim_end().len());
            line
        };
        (0..height).map(line).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fit(terminal::width()))
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn total(block: &[Shown]) -> usize {
    block.iter().map(|shown| shown.width + GAP).sum::<usize>().saturating_sub(GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: usize) -> Table {
        let mut table = Table::new(1);
        table.text("key");
        for column in 0..columns {
            table.number(format!("count {column}"), "ns");
        }
        for row in ["first", "second"] {
            table.row([row.to_owned()].into_iter().chain((0..columns).map(|n| format!("{n}.25"))));
        }
        table
    }

    fn widest(text: &str) -> usize {
        text.lines().map(length).max().unwrap_or(0)
    }

    #[test]
    fn what_does_not_fit_stands_below_with_its_keys() {
        let text = table(12).fit(40);
        assert!(widest(&text) <= 40, "{text}");
        let blocks: Vec<&str> = text.split("\n\n").collect();
        assert!(blocks.len() > 1 && blocks.iter().all(|block| block.contains("second")), "{text}");
        for column in 0..12 {
            assert_eq!(text.matches(&format!(" {column}.25")).count(), 2, "{text}");
        }
        assert_eq!(table(12).fit(400).split("\n\n").count(), 1);
    }

    #[test]
    fn columns_without_a_cell_are_left_out() {
        let mut table = Table::new(1);
        for head in ["a", "b", "c"] {
            table.text(head);
        }
        table.row(["1", "", "3"]);
        assert_eq!(table.fit(80), "a  c\n─  ─\n1  3");
    }

    #[test]
    fn long_texts_are_broken_between_words_and_numbers_never() {
        let mut table = Table::new(1);
        table.text("key");
        table.text("remark");
        table.number("a", "");
        let remark = "not simulated: the machine has no such thing as a second node to be far";
        table.row(["k", remark, "123456789012345678901234567890"]);
        let text = table.fit(60);
        assert!(widest(&text) <= 60, "{text}");
        assert!(text.contains("123456789012345678901234567890"));
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(remark.split(' ').all(|word| words.contains(&word)), "{text}");
    }
}

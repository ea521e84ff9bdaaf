//! What the terminal can show: how wide it is, and whether colours are wanted.
//!
//! ```
//! assert!(zonal_cli::terminal::width() >= 60);
//! ```

use console::{Style, Term};

/// Columns where there is no terminal to ask.
const COLUMNS: usize = 80;

/// Columns of the terminal that standard output is; 80 where it is none.
#[must_use]
pub fn width() -> usize {
    let size = Term::stdout().size_checked();
    // A terminal that says less cannot show any table.
    size.map_or(COLUMNS, |(_, columns)| usize::from(columns)).max(60)
}

/// `text` in lines that the terminal has room for, broken between words.
#[must_use]
pub fn fold(text: &str) -> String {
    broken(text, width()).join("\n")
}

/// `text` in lines of `width` characters, broken between words where it has such.
pub(crate) fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    // What is indented stays so.
    let indent = text.len() - text.trim_start().len();
    for (at, word) in text.trim_start().split(' ').enumerate() {
        let Some(line) = lines.last_mut() else { break };
        let gap = if at == 0 { indent } else { 1 };
        if at == 0 || length(line) + gap + length(word) <= width {
            line.push_str(&" ".repeat(gap));
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// `text` as what matters most. Coloured on a terminal only, and not where `NO_COLOR` is set.
#[must_use]
pub fn strong(text: &str) -> String {
    Style::new().bold().green().apply_to(text).to_string()
}

/// `text` as a warning, coloured likewise.
#[must_use]
pub fn warning(text: &str) -> String {
    Style::new().yellow().apply_to(text).to_string()
}

/// `text` as what need not be read, coloured likewise.
#[must_use]
pub fn faint(text: &str) -> String {
    Style::new().dim().apply_to(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_broken_between_words() {
        assert_eq!(broken("  one two three", 10), ["  one two", "three"]);
        assert_eq!(broken("indivisible", 3), ["indivisible"]);
        assert_eq!(broken("", 3), [""]);
    }

    #[test]
    fn where_there_is_no_terminal_there_is_no_colour() {
        // Of a test, standard output may be a terminal.
        console::set_colors_enabled(false);
        assert_eq!(strong("x") + &warning("y") + &faint("z"), "xyz");
        console::set_colors_enabled(true);
        assert_eq!(warning("y"), "\u{1b}[33my\u{1b}[0m");
    }
}

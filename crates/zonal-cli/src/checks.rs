//! What the tests of every program check of its output: that it fits 80 columns, and that it is coloured
//! on a terminal only, and not where `NO_COLOR` is set.
//!
//! ```
//! zonal_cli::checks::fits("echo", &["a line", "another"]);
//! ```

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

/// Columns that the output has to fit.
const COLUMNS: usize = 80;

/// Runs `program` once for each of the lines of arguments, its output not a terminal, and looks at how wide what it
/// prints is.
///
/// # Panics
///
/// If a line does not succeed, prints nothing, or prints lines that 80 columns have no room for.
pub fn fits(program: impl AsRef<OsStr>, lines: &[&str]) {
    let program = program.as_ref();
    let mut wide = Vec::new();
    for line in lines {
        let mut command = Command::new(program);
        let output = run(command.args(line.split_whitespace()).env_remove("COLUMNS"), line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!text.trim().is_empty(), "`{line}` prints nothing");
        let lines = text.lines().filter(|text| text.chars().count() > COLUMNS);
        wide.extend(lines.map(|text| format!("`{line}`: {text}")));
    }
    assert!(wide.is_empty(), "wider than {COLUMNS} columns:\n{}", wide.join("\n"));
}

/// Runs `program` on a terminal of 80 columns, with and without `NO_COLOR`, and looks for colours.
///
/// # Panics
///
/// If there are none on a terminal, or some although `NO_COLOR` is set, or some where there is no terminal;
/// if a run fails.
pub fn colours(program: impl AsRef<OsStr>, line: &str) {
    let program = program.as_ref();
    let on_terminal = |no_colour: bool| {
        let shell = format!("stty cols {COLUMNS} rows 24; exec '{}' {line}", program.display());
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &shell, "/dev/null"]);
        command.env("TERM", "xterm-256color").env_remove("CLICOLOR_FORCE").env_remove("NO_COLOR");
        if no_colour {
            command.env("NO_COLOR", "1");
        }
        has_colours(&run(&mut command, line))
    };
    assert!(on_terminal(false), "`{line}` has no colours on a terminal");
    assert!(!on_terminal(true), "`{line}` has colours in spite of NO_COLOR");
    let mut command = Command::new(program);
    let piped = run(command.args(line.split_whitespace()).env_remove("CLICOLOR_FORCE"), line);
    assert!(!has_colours(&piped), "`{line}` has colours where there is no terminal");
}

fn run(command: &mut Command, line: &str) -> Output {
    let output = command.stdin(Stdio::null()).output().expect("the program can be run");
    assert!(output.status.success(), "`{line}`: {output:?}");
    output
}

/// Whether there is an escape sequence that sets how characters look: a bar that moves the cursor is none.
fn has_colours(output: &Output) -> bool {
    let text = String::from_utf8_lossy(&output.stdout);
    text.split("\u{1b}[").skip(1).any(|rest| {
        let end = rest.find(|at: char| !(at.is_ascii_digit() || at == ';'));
        end.is_some_and(|end| {
            rest[end..].starts_with('m') && !rest[..end].trim_matches('0').is_empty()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "wider than 80 columns")]
    fn a_long_line_is_found() {
        fits("printf", &["%081d 1"]);
    }

    #[test]
    #[should_panic(expected = "in spite of NO_COLOR")]
    fn colours_in_spite_of_no_color_are_found() {
        colours("printf", r"\\033[1mx");
    }

    #[test]
    #[should_panic(expected = "no colours on a terminal")]
    fn a_program_without_colours_is_found() {
        colours("echo", "x");
    }
}

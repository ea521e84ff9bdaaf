//! What the tests of every program check of its output: that it fits 80 columns, and that it is coloured
//! on a terminal only, and not where `NO_COLOR` is set. And how they press Ctrl-C.
//!
//! ```
//! zonal_cli::checks::fits("echo", &["a line", "another"]);
//! ```

use std::ffi::OsStr;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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
    for line in lines {
        let mut command = Command::new(program);
        let output = run(command.args(line.split_whitespace()).env_remove("COLUMNS"), line);
        text_fits(line, &String::from_utf8_lossy(&output.stdout));
    }
}

/// Looks at how wide `text` is, which a line of arguments printed where `COLUMNS` is not set. For a test that runs
/// the line anyway, and takes long to.
///
/// # Panics
///
/// If it is nothing, or has lines that 80 columns have no room for.
pub fn text_fits(line: &str, text: &str) {
    assert!(!text.trim().is_empty(), "`{line}` prints nothing");
    let wide: Vec<_> = text.lines().filter(|text| text.chars().count() > COLUMNS).collect();
    assert!(wide.is_empty(), "`{line}`: wider than {COLUMNS} columns:\n{}", wide.join("\n"));
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

/// Presses Ctrl-C once `child` watches for it and has had a CPU for `work`, and waits for its end. The time is the
/// CPU's, which a busy machine does not shorten. One that ends before is waited for only.
///
/// # Panics
///
/// If it comes to neither within a minute: it is killed then. If it cannot be waited for.
#[must_use]
pub fn press_ctrl_c(mut child: Child, work: Duration) -> Output {
    let (begun, pid) = (Instant::now(), child.id());
    while child.try_wait().expect("it is this process's child").is_none() {
        if watches_ctrl_c(pid) && time_on_cpus(pid) >= work {
            let kill = Command::new("kill").args(["-INT", &pid.to_string()]).status();
            assert!(kill.expect("there is such a program").success(), "it has not been waited for");
            break;
        }
        if begun.elapsed() > PATIENCE {
            // If it cannot be killed, it has ended by now.
            let _ = child.kill();
            let output = child.wait_with_output();
            panic!("it did not come to work in {PATIENCE:?}: {output:?}");
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("it can be read")
}

/// How long a program may take until it works.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a process catches SIGINT, the second signal.
fn watches_ctrl_c(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 2 != 0))
}

/// For how long all threads of a process together had a CPU. Linux tells it in hundredths of a second.
fn time_on_cpus(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The 14th and the 15th value. The second is a name, which may have anything in it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = rest.split_whitespace().skip(11).take(2).filter_map(|it| it.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
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

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        let command = command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("there is a shell")
    }

    #[test]
    fn ctrl_c_is_pressed_where_it_is_watched_for_and_after_some_work() {
        // SIGINT ends it while it sleeps.
        let script = "sleep 0.2; trap 'times; exit 7' INT; while :; do :; done";
        let output = press_ctrl_c(shell(script), Duration::from_millis(150));
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let times = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers = times.lines().next().expect("of the shell").split(['m', 's', ' ']);
        let worked: f64 = numbers.filter_map(|it| it.parse::<f64>().ok()).sum();
        assert!(worked >= 0.1, "{times}");
    }

    #[test]
    fn a_program_that_ends_by_itself_is_waited_for() {
        let output = press_ctrl_c(shell("echo done; exit 3"), Duration::ZERO);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"done\n"[..]));
    }
}

//! One progress bar for all commands.
//!
//! ```
//! let bar = zonal_cli::bar::Bar::new(10, true);
//! bar.at(3, 10, "reading");
//! ```

use core::fmt::Write;
use core::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// With a time left that follows from the steps done.
const STYLE: &str = "{bar:24} {percent:>3} %, {left:>4} left  {wide_msg}";
/// With one that is given.
const TIMED: &str = "{bar:24} {percent:>3} %, {wide_msg}";

/// How long it takes still; before the first step is done, from which that could follow, it is not
/// known.
fn left(done: u64, expected: Duration) -> String {
    if done == 0 { "?".into() } else { format!("{:#}", HumanDuration(expected)) }
}

/// A bar on stderr; hidden where that is no terminal, and cleared when it is dropped. Drawn when
/// it is told something only: a ticking thread would take a CPU from what is measured.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar of `all` steps; it may be `hidden`.
    #[must_use]
    pub fn new(all: u64, hidden: bool) -> Self {
        let target = if hidden {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(5)
        };
        let bar = ProgressBar::with_draw_target(Some(all), target);
        if let Ok(style) = ProgressStyle::with_template(STYLE) {
            let left = |state: &ProgressState, out: &mut dyn Write| {
                // What cannot be written is not shown.
                let _ = out.write_str(&left(state.pos(), state.eta()));
            };
            bar.set_style(style.with_key("left", left));
        }
        Self(bar)
    }

    /// A bar of time: see [`time`](Self::time).
    #[must_use]
    pub fn of_time(hidden: bool) -> Self {
        let bar = Self::new(0, hidden);
        if let Ok(style) = ProgressStyle::with_template(TIMED) {
            bar.0.set_style(style);
        }
        bar
    }

    /// `done` of `all` steps are done, `what` is next.
    pub fn at(&self, done: u64, all: u64, what: &str) {
        self.0.set_length(all);
        self.0.set_position(done);
        self.0.set_message(what.to_owned());
    }

    /// Of a time, `over` has passed and `left` is expected; `what` is next. The time left is shown
    /// as it is given.
    pub fn time(&self, over: Duration, left: Duration, what: &str) {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.0.set_length(millis(over + left));
        self.0.set_position(millis(over));
        self.0.set_message(format!("{} left  {what}", HumanDuration(left)));
    }

    /// Does something that writes to the terminal without the bar in its way.
    pub fn hide_while<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.suspend(work)
    }

    /// `steps` more are done, which were `what`.
    pub fn done(&self, steps: u64, what: String) {
        self.0.set_message(what);
        self.0.inc(steps);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_promised_before_a_step_is_done() {
        assert_eq!(left(0, Duration::ZERO), "?");
        assert_eq!(left(1, Duration::from_secs(30)), "30s");
        assert_eq!(left(9, Duration::ZERO), "0s");
    }
}

//! One progress bar for all commands.
//!
//! ```
//! let bar = zonal_cli::bar::Bar::new(10, true);
//! bar.at(3, 10, "reading");
//! ```

use core::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// With a time left that follows from the steps done.
const STYLE: &str = "{bar:24} {percent:>3} %, {eta:>4} left  {wide_msg}";
/// With one that is given.
const TIMED: &str = "{bar:24} {percent:>3} %, {wide_msg}";

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
            bar.set_style(style);
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

//! One progress bar for all commands.
//!
//! ```
//! let bar = zonal_cli::bar::Bar::new(10, true);
//! bar.at(3, 10, "reading");
//! ```

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3} % {eta:>4}  {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// `done` of `all` steps are done, `what` is next.
    pub fn at(&self, done: u64, all: u64, what: &str) {
        self.0.set_length(all);
        self.0.set_position(done);
        self.0.set_message(what.to_owned());
    }

    /// One more is done, which was `what`.
    pub fn done(&self, what: String) {
        self.0.set_message(what);
        self.0.inc(1);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

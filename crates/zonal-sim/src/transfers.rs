//! Lines on their way from one core's cache to another's.
//!
//! A line that several cores write goes to one after the other, in the order in which they ask for it: one that
//! asks while the line is still on its way to another waits until it has arrived there. What is on its way
//! is remembered in a table of [`PLACES`] lines, each in the one place that its number gives it: of two
//! lines of one place the later one is known, and who asks for the other does not wait.

use crate::ticks::Ticks;

/// How many lines are known to be on their way.
const PLACES: usize = 4096;

/// For how long a line that went to another core is thought to be wanted by others: 10,000 cycles.
const RECENT: Ticks = Ticks(10_000 * Ticks::PER_CYCLE);

/// When lines have arrived at the core that asked for them last.
pub(crate) struct Transfers(Box<[(usize, Ticks)]>);

impl Transfers {
    /// None is on its way.
    pub(crate) fn new() -> Self {
        Self(vec![(usize::MAX, Ticks::default()); PLACES].into_boxed_slice())
    }

    /// When a core that asks for a line at `asked` is sent it.
    pub(crate) fn sent(&self, line: usize, asked: Ticks) -> Ticks {
        let (known, arrives) = self.0[line % PLACES];
        if known == line { asked.max(arrives) } else { asked }
    }

    /// Whether a line went from one core to another a short while before `now`, and so may again.
    #[inline]
    pub(crate) fn travels(&self, line: usize, now: Ticks) -> bool {
        let (known, arrives) = self.0[line % PLACES];
        known == line && now < arrives + RECENT
    }

    /// A line will have arrived at the core that asked for it.
    pub(crate) fn arrives(&mut self, line: usize, at: Ticks) {
        self.0[line % PLACES] = (line, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_a_line_on_its_way_waits() {
        let mut transfers = Transfers::new();
        assert_eq!(transfers.sent(7, Ticks(10)), Ticks(10));
        transfers.arrives(7, Ticks(50));
        assert_eq!(transfers.sent(7, Ticks(10)), Ticks(50));
        assert_eq!(transfers.sent(7, Ticks(60)), Ticks(60), "it is there");
        assert_eq!(transfers.sent(8, Ticks(10)), Ticks(10), "another line");
        assert!(transfers.travels(7, Ticks(60)) && !transfers.travels(8, Ticks(60)));
        assert!(!transfers.travels(7, Ticks(50) + RECENT));
        transfers.arrives(7 + PLACES, Ticks(90));
        assert_eq!(transfers.sent(7, Ticks(10)), Ticks(10), "forgotten");
    }
}

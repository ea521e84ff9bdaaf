//! Several runs that differ by their seed, as one.

use super::{LineProfile, LockProfile, Outcome, Spin};

impl Outcome {
    /// Several runs that differ by their seed, as one: the mean of each figure, and the sum of
    /// what was counted beside (cycles, seconds, waiting, locks, lines). A figure that not all
    /// runs show is left out. `None` of no runs. O(runs × figures).
    ///
    /// ```
    /// use zonal_sim::outcome::{Figure, Outcome};
    /// let run = |value| {
    ///     let figure = Figure { name: "score".into(), value, unit: "1/s" };
    ///     Outcome { cycles: 10, figures: vec![figure], ..Outcome::default() }
    /// };
    /// let both = Outcome::mean([run(1.0), run(2.0)]).expect("two runs");
    /// assert_eq!((both.figure("score"), both.cycles), (Some(1.5), 20));
    /// ```
    #[must_use]
    pub fn mean(runs: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut runs = runs.into_iter();
        let mut all = runs.next()?;
        let mut count = 1_u32;
        for run in runs {
            count += 1;
            all.cycles += run.cycles;
            all.seconds += run.seconds;
            all.figures.retain_mut(|figure| {
                let more = run.figure(&figure.name);
                figure.value += more.unwrap_or_default();
                more.is_some()
            });
            add(&mut all.spins, run.spins);
            add(&mut all.locks, run.locks);
            add(&mut all.lines, run.lines);
            let new = run.off.into_iter().filter(|it| !all.off.contains(it)).collect::<Vec<_>>();
            all.off.extend(new);
        }
        for figure in &mut all.figures {
            figure.value /= f64::from(count);
        }
        Some(all)
    }
}

/// A part of a profile.
trait Part {
    /// Whether both are about the same thing.
    fn is_of(&self, other: &Self) -> bool;
    /// Adds what was counted.
    fn add(&mut self, more: &Self);
}

fn add<P: Part>(all: &mut Vec<P>, more: Vec<P>) {
    for part in more {
        match all.iter_mut().find(|known| known.is_of(&part)) {
            Some(known) => known.add(&part),
            None => all.push(part),
        }
    }
}

impl Part for Spin {
    fn is_of(&self, other: &Self) -> bool {
        (self.lock, self.during) == (other.lock, other.during)
    }
    fn add(&mut self, more: &Self) {
        self.cycles += more.cycles;
    }
}

impl Part for LockProfile {
    fn is_of(&self, other: &Self) -> bool {
        (self.class, self.index) == (other.class, other.index)
    }
    fn add(&mut self, more: &Self) {
        self.taken += more.taken;
        self.contended += more.contended;
        self.waited += more.waited;
        self.held += more.held;
        self.transferred += more.transferred;
    }
}

impl Part for LineProfile {
    fn is_of(&self, other: &Self) -> bool {
        self.class == other.class
    }
    fn add(&mut self, more: &Self) {
        self.private += more.private;
        self.shared += more.shared;
        self.near += more.near;
        self.far += more.far;
        self.memory += more.memory;
        self.streamed += more.streamed;
        self.queued += more.queued;
        self.cycles += more.cycles;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Figure;

    #[test]
    fn what_was_counted_adds_up_by_name() {
        let run = |spins: &[(&'static str, u64)], figures: &[(&str, f64)]| Outcome {
            spins: spins.iter().map(|&(lock, cycles)| Spin::new(lock, "alloc", cycles)).collect(),
            locks: vec![LockProfile { class: "zone", taken: 2, ..LockProfile::default() }],
            lines: vec![LineProfile { class: "frames", far: 3, ..LineProfile::default() }],
            cycles: 100,
            seconds: 0.5,
            figures: figures
                .iter()
                .map(|&(name, value)| Figure { name: name.into(), value, unit: "count" })
                .collect(),
            ..Outcome::default()
        };
        let first = run(&[("zone", 40)], &[("faults", 1.0), ("rare", 9.0)]);
        let second = run(&[("lru", 10), ("zone", 20)], &[("faults", 4.0)]);
        let third = run(&[], &[("faults", 1.0), ("rare", 3.0)]);
        let all = Outcome::mean([first, second, third]).expect("three");
        assert_eq!((all.figure("faults"), all.figure("rare")), (Some(2.0), None));
        assert!((all.spin_percent("zone") - 20.0).abs() < 1e-9, "{:?}", all.spins);
        assert!((all.spin_percent("lru") - 10.0 / 3.0).abs() < 1e-9);
        assert_eq!((all.locks[0].taken, all.lines[0].far, all.cycles), (6, 9, 300));
        assert!((all.seconds - 1.5).abs() < 1e-9);
        assert_eq!(Outcome::mean([]), None);
    }
}

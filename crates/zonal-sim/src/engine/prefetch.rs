//! What is fetched before it is needed: by a virtual CPU, for a part of the price, and by the host,
//! for its own sake.

use super::Engine;
use crate::space::Place;
use crate::ticks::Ticks;

/// Lines that a core can have under way at once: ten line fill buffers, as the Intel cores of the sources
/// have them.
const UNDER_WAY: u64 = 10;

impl Engine {
    /// A prefetch: the core has the line from now on, as after a load, but waits for a
    /// [part](UNDER_WAY) of its time only. Where it would be bound by memory it waits for that.
    pub(crate) fn prefetch_charged(&mut self, cpu: usize, address: usize) {
        let access = self.costs.access;
        self.spend(cpu, access);
        let Some(Place { line, class }) = self.space.place(address) else { return };
        if self.lines.again(line, self.cpus[cpu].core, false) {
            return;
        }
        let home = self.space.home(address).unwrap_or(self.cpus[cpu].socket);
        let before = self.cpus[cpu].clock;
        let served = self.bring(cpu, line, false, home);
        let part = Ticks((self.cpus[cpu].clock - before).0 / UNDER_WAY);
        self.cpus[cpu].clock = before + part;
        self.measured.line(class, served, part);
    }

    /// The host will have the metadata of a frame and its line at hand. Nothing is charged.
    pub(crate) fn prefetch(&self, index: usize, line: usize) {
        self.space.prefetch(index);
        self.lines.prefetch(line);
    }

    /// The same for what a word leads to that is about to be read.
    #[inline]
    pub(crate) fn prefetch_linked(&self, address: usize, word: u64) {
        if let Some((previous, next)) = self.space.prefetch_linked(address, word) {
            self.lines.prefetch(previous);
            self.lines.prefetch(next);
        }
    }
}

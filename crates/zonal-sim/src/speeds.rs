//! How fast the cores run: a socket with few busy cores clocks them higher, and two hardware
//! threads share a core.

use crate::machine::Machine;
use crate::ticks::Ticks;

/// The speed of every core, and what it depends on.
pub(crate) struct Speeds {
    /// How much longer instructions take than at the nominal clock, in 1/256, by busy cores of
    /// the socket and by whether the sibling is busy.
    slowness: Vec<[u64; 2]>,
    /// Busy threads of each core.
    threads: Vec<u8>,
    /// Busy cores of each socket.
    cores: Vec<u16>,
    cores_per_socket: usize,
    /// What it is now, for each core.
    now: Vec<u64>,
    /// Busy CPUs of the machine.
    pub(crate) busy: u32,
}

impl Speeds {
    /// All of the first `tasks` CPUs are busy.
    pub(crate) fn new(machine: &Machine, tasks: u32) -> Self {
        let topology = &machine.topology;
        let slowness = |busy: u32, share: f64| {
            let speed = machine.clock.speed(busy) * share;
            (Ticks::PER_CYCLE as f64 / speed).round() as u64
        };
        let of = |busy| [slowness(busy, 1.0), slowness(busy, machine.clock.sibling_share)];
        let mut speeds = Self {
            slowness: (0..=u32::from(topology.cores_per_socket))
                .map(|busy| of(busy.max(1)))
                .collect(),
            threads: vec![0; topology.cores() as usize],
            cores: vec![0; usize::from(topology.sockets)],
            cores_per_socket: usize::from(topology.cores_per_socket),
            now: vec![Ticks::PER_CYCLE; topology.cores() as usize],
            busy: 0,
        };
        for cpu in 0..tasks {
            speeds.change(topology.core_of(cpu) as u8, topology.socket_of(cpu) as u8, true);
        }
        speeds
    }

    /// A thread of a core has something to run now, or no longer.
    pub(crate) fn change(&mut self, core: u8, socket: u8, busy: bool) {
        let threads = &mut self.threads[usize::from(core)];
        let before = *threads;
        *threads = if busy { before + 1 } else { before - 1 };
        let cores = &mut self.cores[usize::from(socket)];
        let changed = match (before, *threads) {
            (0, 1) => {
                *cores += 1;
                true
            }
            (1, 0) => {
                *cores -= 1;
                true
            }
            _ => false,
        };
        self.busy = if busy { self.busy + 1 } else { self.busy - 1 };
        let slowness = self.slowness[usize::from(*cores)];
        let of = |threads: u8| slowness[usize::from(threads > 1)];
        if changed {
            let first = usize::from(socket) * self.cores_per_socket;
            let all = first..first + self.cores_per_socket;
            for (now, &threads) in self.now[all.clone()].iter_mut().zip(&self.threads[all]) {
                *now = of(threads);
            }
        } else {
            self.now[usize::from(core)] = of(self.threads[usize::from(core)]);
        }
    }

    /// How much longer instructions take on a core than at the nominal clock, in 1/256.
    #[inline]
    pub(crate) fn slowness(&self, core: u8) -> u64 {
        self.now[usize::from(core)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    #[test]
    fn every_core_is_as_fast_as_the_busy_ones_let_it_be() {
        let machine = machine::builtin("skylake_2s_112cpu").expect("it is built in");
        let topology = machine.topology;
        let mut speeds = Speeds::new(&machine, topology.cpus());
        let mut busy = vec![true; topology.cpus() as usize];
        let mut dice = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let cpu = dice.u32(..topology.cpus());
            let change = &mut busy[cpu as usize];
            *change = !*change;
            let (core, socket) = (topology.core_of(cpu) as u8, topology.socket_of(cpu) as u8);
            speeds.change(core, socket, *change);
            for core in 0..topology.cores() {
                let threads = |core: u32| {
                    u32::from(busy[core as usize])
                        + u32::from(busy[(core + topology.cores()) as usize])
                };
                let first = topology.socket_of(core) * u32::from(topology.cores_per_socket);
                let socket = first..first + u32::from(topology.cores_per_socket);
                let cores = socket.filter(|&core| threads(core) > 0).count() as u32;
                let share = if threads(core) > 1 { machine.clock.sibling_share } else { 1.0 };
                let slowness = Ticks::PER_CYCLE as f64 / (machine.clock.speed(cores) * share);
                assert_eq!(speeds.slowness(core as u8), slowness.round() as u64);
            }
        }
    }
}

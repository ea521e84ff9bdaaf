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
        match (before, *threads) {
            (0, 1) => *cores += 1,
            (1, 0) => *cores -= 1,
            _ => (),
        }
        self.busy = if busy { self.busy + 1 } else { self.busy - 1 };
    }

    /// How much longer instructions take on a core than at the nominal clock, in 1/256.
    #[inline]
    pub(crate) fn slowness(&self, core: u8, socket: u8) -> u64 {
        let shared = self.threads[usize::from(core)] > 1;
        self.slowness[usize::from(self.cores[usize::from(socket)])][usize::from(shared)]
    }
}

//! Lines as they are kept against lines as one would write them down.

use zonal_sim::lines::{Capacity, Lines, Served};
use zonal_sim::machine::{self, Topology};

/// Lines so far apart that the prefetcher sees no stream.
const APART: usize = 100;
const LINES: usize = 40;
const CAPACITY: Capacity = Capacity { private: 8, shared: 30 };

/// A line with all that is known of it.
#[derive(Clone, Copy, Default)]
struct Plain {
    sharers: u128,
    /// Who touched it last, and what it and its socket had fetched then.
    last: Option<(usize, u32, u32)>,
    dirty: bool,
}

struct Model {
    lines: Vec<Plain>,
    fetched: Vec<u32>,
    socket_fetched: Vec<u32>,
    cores_per_socket: usize,
}

impl Model {
    fn new(topology: &Topology) -> Self {
        Self {
            lines: vec![Plain::default(); LINES],
            fetched: vec![0; topology.cores() as usize],
            socket_fetched: vec![0; usize::from(topology.sockets)],
            cores_per_socket: usize::from(topology.cores_per_socket),
        }
    }

    fn socket(&self, core: usize) -> usize {
        core / self.cores_per_socket
    }

    fn access(&mut self, line: usize, core: usize, write: bool, home: usize) -> Served {
        let (mut plain, bit, socket) = (self.lines[line], 1u128 << core, self.socket(core));
        let fresh = plain
            .last
            .is_some_and(|(last, fetched, _)| self.fetched[last] - fetched <= CAPACITY.private);
        let own = plain.last.is_some_and(|(last, ..)| last == core);
        let has = plain.sharers & bit != 0 && (!own || fresh);
        let others = plain.sharers & !bit;
        let served = match has {
            true if write && others != 0 => {
                let far =
                    (0..128).any(|other| others >> other & 1 != 0 && self.socket(other) != socket);
                plain.sharers = bit;
                if far { Served::Far } else { Served::Near }
            }
            true => Served::Private,
            false => {
                let from = self.miss(&plain, core, home, fresh && !own);
                self.socket_fetched[socket] +=
                    u32::from(matches!(from, Served::Memory | Served::MemoryFar));
                self.fetched[core] += 1;
                plain.sharers = match (write, plain.last) {
                    (true, _) => bit,
                    (false, Some((last, ..))) if plain.dirty && fresh => bit | 1 << last,
                    (false, _) => plain.sharers | bit,
                };
                plain.dirty = false;
                from
            }
        };
        plain.dirty |= write;
        plain.last = Some((core, self.fetched[core], self.socket_fetched[socket]));
        self.lines[line] = plain;
        served
    }

    fn miss(&self, plain: &Plain, core: usize, home: usize, others: bool) -> Served {
        let socket = self.socket(core);
        let memory = if home == socket { Served::Memory } else { Served::MemoryFar };
        let Some((last, _, fetched)) = plain.last else { return memory };
        let from = self.socket(last);
        let shared = self.socket_fetched[from] - fetched <= CAPACITY.shared;
        match (plain.dirty && others, from == socket) {
            (true, true) => Served::Near,
            (true, false) => Served::Far,
            (false, true) if shared => Served::Shared,
            (false, false) if shared && plain.dirty => Served::Far,
            (false, _) => memory,
        }
    }
}

/// Few writes leave lines with many sharers, many writes with one or two.
#[test]
fn every_access_is_served_as_by_the_model() {
    let topology = machine::builtin("skylake_4s_768g").expect("it is built in").topology;
    let mut seen = [0u32; Served::COUNT];
    for (seed, one_write_in) in [(1, 2), (2, 10), (3, 100)] {
        let mut dice = fastrand::Rng::with_seed(seed);
        let (mut model, mut lines) = (Model::new(&topology), Lines::new(&topology, CAPACITY));
        lines.grow(LINES * APART);
        for _ in 0..100_000 {
            let (line, core) = (dice.usize(..LINES), dice.usize(..topology.cores() as usize));
            let home = dice.usize(..usize::from(topology.sockets));
            for _ in 0..dice.u32(1..4) {
                let write = dice.usize(..one_write_in) == 0;
                let served = lines.access(line * APART, core as u8, write, home as u8);
                // The model has no prefetcher: it helps a core that fetches a line again at once.
                let modelled = model.access(line, core, write, home);
                let streamed = served == Served::Streamed
                    && !matches!(modelled, Served::Near | Served::Far | Served::Private);
                assert!(served == modelled || streamed, "{served:?}, not {modelled:?}");
                seen[modelled as usize] += 1;
            }
            if dice.u32(..4) == 0 {
                let count = dice.u32(..12);
                lines.pollute(core as u8, count);
                model.fetched[core] += count;
                let socket = model.socket(core);
                model.socket_fetched[socket] += count;
            }
        }
    }
    let but_streamed = &seen[..Served::Streamed as usize];
    assert!(but_streamed.iter().all(|&count| count > 1000), "{seen:?}");
}

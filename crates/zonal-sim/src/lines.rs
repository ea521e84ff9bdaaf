//! Cache lines: who has each, and from where an access is served.
//!
//! A line knows the cores that have it, who touched it last, and whether it is dirty. Capacity
//! is approximated by age: a core still has a line if it has fetched no more lines since than its
//! cache holds; likewise the shared cache of a socket. Associativity, and the cores' sharing of
//! lines that are neither dirty nor last touched, are left out.
//!
//! ```
//! use zonal_sim::lines::{Capacity, Lines, Served};
//! use zonal_sim::machine;
//! let machine = machine::builtin("skylake_2s_112cpu").expect("it is built in");
//! let mut lines = Lines::new(&machine.topology, Capacity::of(&machine.cache));
//! lines.grow(1);
//! assert_eq!(lines.access(0, 0, true, 0), Served::Memory);
//! assert_eq!(lines.access(0, 0, true, 0), Served::Private);
//! assert_eq!(lines.access(0, 1, true, 0), Served::Near, "core 0 has it dirty");
//! assert_eq!(lines.access(0, 28, true, 0), Served::Far, "core 28 is on the other socket");
//! ```

use crate::machine::{Cache, Topology};

/// Bytes of a line.
pub const LINE: usize = 64;

/// How many recent misses of a core its prefetcher knows.
const STREAMS: usize = 8;

/// From where an access was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Served {
    /// The core's own cache.
    Private,
    /// The socket's shared cache.
    Shared,
    /// A core of the same socket, which had written the line or had to give it up.
    Near,
    /// Another socket's cache.
    Far,
    /// The socket's own memory.
    Memory,
    /// Another socket's memory.
    MemoryFar,
    /// Memory or the shared cache, ahead of time, by the prefetcher.
    Streamed,
}

impl Served {
    /// How many there are.
    pub const COUNT: usize = 7;
}

/// What caches hold, in lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Of a core.
    pub private: u32,
    /// Of a socket.
    pub shared: u32,
}

impl Capacity {
    /// That of a machine.
    #[must_use]
    pub const fn of(cache: &Cache) -> Self {
        let lines_of_kib = (1024 / LINE) as u32;
        Self { private: cache.private_kib * lines_of_kib, shared: cache.shared_kib * lines_of_kib }
    }
}

#[derive(Clone, Copy, Default)]
struct Line {
    /// The cores that have it, if it has not grown too old there.
    sharers: u128,
    /// The fetches of `last` when it touched the line.
    stamp: u32,
    /// The fetches of `socket` from memory then.
    socket_stamp: u32,
    /// Who touched it last; for a dirty line its only owner.
    last: u8,
    /// The socket of `last`.
    socket: u8,
    dirty: bool,
    /// Whether any cache has had it.
    seen: bool,
}

/// All lines of a machine.
pub struct Lines {
    lines: Vec<Line>,
    capacity: Capacity,
    /// Lines fetched by each core, and from memory by each socket.
    fetched: Vec<u32>,
    socket_fetched: Vec<u32>,
    recent: Vec<[u32; STREAMS]>,
    next: Vec<u8>,
    cores_per_socket: u16,
}

impl Lines {
    /// No lines yet.
    #[must_use]
    pub fn new(topology: &Topology, capacity: Capacity) -> Self {
        let cores = usize::from(topology.sockets * topology.cores_per_socket);
        Self {
            lines: Vec::new(),
            capacity,
            fetched: vec![0; cores],
            socket_fetched: vec![0; usize::from(topology.sockets)],
            recent: vec![[u32::MAX; STREAMS]; cores],
            next: vec![0; cores],
            cores_per_socket: topology.cores_per_socket,
        }
    }

    /// Adds `count` lines that no cache has; returns the number of the first.
    pub fn grow(&mut self, count: usize) -> usize {
        let first = self.lines.len();
        self.lines.resize(first + count, Line::default());
        first
    }

    /// How many lines there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// A core reads or writes a line whose memory is on the socket `home`.
    pub fn access(&mut self, line: usize, core: u8, write: bool, home: u8) -> Served {
        let socket = (u16::from(core) / self.cores_per_socket) as u8;
        let bit = 1u128 << core;
        let entry = &mut self.lines[line];
        let last = usize::from(entry.last);
        let fresh = self.fetched[last].wrapping_sub(entry.stamp) <= self.capacity.private;
        let served = if entry.sharers & bit != 0 && (last != usize::from(core) || fresh) {
            let others = entry.sharers & !bit;
            if write && others != 0 {
                entry.sharers = bit;
                let own_socket = mask(socket, self.cores_per_socket);
                if others & !own_socket == 0 { Served::Near } else { Served::Far }
            } else {
                Served::Private
            }
        } else {
            let in_shared = self.socket_fetched[usize::from(entry.socket)]
                .wrapping_sub(entry.socket_stamp)
                <= self.capacity.shared;
            let from = entry.miss(core, socket, home, fresh, in_shared);
            if matches!(from, Served::Memory | Served::MemoryFar) {
                self.socket_fetched[usize::from(socket)] =
                    self.socket_fetched[usize::from(socket)].wrapping_add(1);
            }
            self.fetched[usize::from(core)] = self.fetched[usize::from(core)].wrapping_add(1);
            entry.sharers = match (write, entry.dirty && fresh) {
                (true, _) => bit,
                (false, true) => bit | 1u128 << entry.last,
                (false, false) => entry.sharers | bit,
            };
            entry.dirty = false;
            let streamed = !matches!(from, Served::Near | Served::Far)
                && Self::ahead(&mut self.recent, &mut self.next, core, line);
            if streamed { Served::Streamed } else { from }
        };
        let entry = &mut self.lines[line];
        entry.dirty |= write;
        entry.seen = true;
        entry.last = core;
        entry.stamp = self.fetched[usize::from(core)];
        entry.socket = socket;
        entry.socket_stamp = self.socket_fetched[usize::from(socket)];
        served
    }

    /// A core streams `count` lines of something else through its caches.
    pub fn pollute(&mut self, core: u8, count: u32) {
        let fetched = &mut self.fetched[usize::from(core)];
        *fetched = fetched.wrapping_add(count);
        let socket = usize::from(u16::from(core) / self.cores_per_socket);
        self.socket_fetched[socket] = self.socket_fetched[socket].wrapping_add(count);
    }

    /// Whether the core missed a line next to this one a moment ago.
    fn ahead(recent: &mut [[u32; STREAMS]], next: &mut [u8], core: u8, line: usize) -> bool {
        let (recent, next) = (&mut recent[usize::from(core)], &mut next[usize::from(core)]);
        let line = line as u32;
        let found = recent.iter().position(|&miss| miss.abs_diff(line) <= 1);
        let place = found.unwrap_or_else(|| {
            *next = (*next + 1) % STREAMS as u8;
            usize::from(*next)
        });
        recent[place] = line;
        found.is_some()
    }
}

impl Line {
    /// From where a core gets a line that it has not.
    fn miss(&self, core: u8, socket: u8, home: u8, fresh: bool, in_shared: bool) -> Served {
        let here = self.socket == socket;
        if self.dirty && fresh && self.last != core {
            return if here { Served::Near } else { Served::Far };
        }
        match (self.seen && in_shared, here) {
            (true, true) => Served::Shared,
            (true, false) if self.dirty => Served::Far,
            _ if home == socket => Served::Memory,
            _ => Served::MemoryFar,
        }
    }
}

/// The cores of a socket.
const fn mask(socket: u8, cores_per_socket: u16) -> u128 {
    let cores = u128::MAX >> (128 - cores_per_socket as u32);
    cores << (socket as u32 * cores_per_socket as u32)
}

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

use crate::machine::{Cache, MAX_CORES, Topology};
use crate::memory;
use crate::run::SimError;

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
    /// A core of the same socket, which had written the line, or had to give it up to one that had it too. One that
    /// had it not pays no way to those that have it clean.
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

/// A line. There are millions, so what the host has of them decides how fast the simulation is:
/// four fit into one of its own lines.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Line {
    /// The fetches of `last` when it touched the line.
    stamp: u32,
    /// The fetches of its socket from memory then.
    socket_stamp: u32,
    /// The cores besides `last` that have it, if it has not grown too old there: [`ALONE`], one
    /// core's number and one, or [`FIRST_SET`] and the number of a set.
    others: u32,
    /// Who touched it last; for a dirty line its only owner. [`NO_CORE`] if no cache has had it.
    last: u8,
    dirty: bool,
}

/// There is no core of that number.
const NO_CORE: u8 = u8::MAX;
/// No core has it besides the one that touched it last.
const ALONE: u32 = 0;
/// From this on `others` is the number of a set.
const FIRST_SET: u32 = 1 << 8;

impl Line {
    /// A line that no cache has had.
    const NEW: Self =
        Self { stamp: 0, socket_stamp: 0, others: ALONE, last: NO_CORE, dirty: false };
}

/// The cores that have a line, where they are more than two. Few lines have more.
#[derive(Default)]
struct Sets {
    sets: Vec<u128>,
    unused: Vec<u32>,
}

impl Sets {
    /// The cores that have a line.
    fn sharers(&self, line: &Line) -> u128 {
        match (line.last, line.others) {
            (NO_CORE, _) => 0,
            (last, ALONE) => 1 << last,
            (last, other @ 1..FIRST_SET) => 1 << last | 1 << (other - 1),
            (_, set) => self.sets[(set - FIRST_SET) as usize],
        }
    }

    /// Whether a core has a line.
    fn has(&self, line: &Line, core: u8) -> bool {
        match line.others {
            _ if line.last == core => true,
            ALONE => false,
            other @ 1..FIRST_SET => other - 1 == u32::from(core),
            set => self.sets[(set - FIRST_SET) as usize] >> core & 1 != 0,
        }
    }

    /// From now on `core` alone has the line, or `other` too.
    fn take(&mut self, line: &mut Line, core: u8, other: Option<u8>) {
        self.unused.extend(line.others.checked_sub(FIRST_SET));
        line.last = core;
        line.others = other.map_or(ALONE, |other| u32::from(other) + 1);
    }

    /// From now on `core` has the line as well as those that had it.
    fn join(&mut self, line: &mut Line, core: u8) {
        match line.last {
            NO_CORE => line.last = core,
            last if last == core => (),
            last if line.others == ALONE => self.take(line, core, Some(last)),
            _ => {
                let sharers = self.sharers(line) | 1 << core;
                let few = sharers.count_ones() == 2;
                if few {
                    let other = (sharers & !(1 << core)).trailing_zeros() as u8;
                    self.take(line, core, Some(other));
                } else if let Some(set) = line.others.checked_sub(FIRST_SET) {
                    self.sets[set as usize] = sharers;
                } else {
                    line.others = FIRST_SET + self.add(sharers);
                }
                line.last = core;
            }
        }
    }

    fn add(&mut self, sharers: u128) -> u32 {
        if let Some(set) = self.unused.pop() {
            self.sets[set as usize] = sharers;
            return set;
        }
        self.sets.push(sharers);
        self.sets.len() as u32 - 1
    }
}

/// What a core has fetched.
#[derive(Clone, Copy)]
struct Core {
    /// Lines, from anywhere.
    fetched: u32,
    socket: u8,
    /// The place of `recent` that was used last.
    next: u8,
    recent: [u32; STREAMS],
}

/// All lines of a machine.
pub struct Lines {
    lines: Vec<Line>,
    sets: Sets,
    capacity: Capacity,
    cores: Vec<Core>,
    /// Lines fetched from memory by each socket.
    socket_fetched: Vec<u32>,
    cores_per_socket: u16,
}

impl Lines {
    /// No lines yet.
    ///
    /// # Panics
    /// If the topology has more than [`MAX_CORES`] cores, which no machine file can say.
    #[must_use]
    pub fn new(topology: &Topology, capacity: Capacity) -> Self {
        assert!(topology.cores() <= MAX_CORES, "more cores than the set of a line has bits");
        let core = |core: u16| Core {
            fetched: 0,
            socket: (core / topology.cores_per_socket) as u8,
            next: 0,
            recent: [u32::MAX; STREAMS],
        };
        Self {
            lines: Vec::new(),
            sets: Sets::default(),
            capacity,
            cores: (0..topology.sockets * topology.cores_per_socket).map(core).collect(),
            socket_fetched: vec![0; usize::from(topology.sockets)],
            cores_per_socket: topology.cores_per_socket,
        }
    }

    /// Adds `count` lines that no cache has; returns the number of the first.
    ///
    /// # Panics
    /// If the host has no room for `count` more, 16 bytes each.
    pub fn grow(&mut self, count: usize) -> usize {
        self.try_grow(count).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same for as many lines as memory has, which may be too many for this computer.
    ///
    /// # Errors
    /// [`SimError::Build`] if there is no room for them.
    pub fn try_grow(&mut self, count: usize) -> Result<usize, SimError> {
        let first = self.lines.len();
        memory::reserve(&mut self.lines, count)?;
        self.lines.resize(first + count, Line::NEW);
        Ok(first)
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

    /// A core reads or writes a line whose memory is on the socket `home`. A socket that the
    /// machine does not have is another one.
    ///
    /// # Panics
    /// If there is no such line or no such core.
    pub fn access(&mut self, line: usize, core: u8, write: bool, home: u8) -> Served {
        if self.again(line, core, write) {
            return Served::Private;
        }
        self.serve(line, core, write, home)
    }

    /// A line will be accessed soon.
    #[inline]
    pub(crate) fn prefetch(&self, line: usize) {
        if let Some(entry) = self.lines.get(line) {
            memory::prefetch(core::ptr::from_ref(entry).addr());
        }
    }

    /// The usual access: a core touches a line again that no other has touched since, and
    /// needs no other's leave. Otherwise nothing happens, and [`serve`](Self::serve) it is.
    #[inline]
    pub(crate) fn again(&mut self, line: usize, core: u8, write: bool) -> bool {
        let own = &self.cores[usize::from(core)];
        let entry = &mut self.lines[line];
        if entry.last != core
            || own.fetched.wrapping_sub(entry.stamp) > self.capacity.private
            || write && entry.others != ALONE
        {
            return false;
        }
        entry.dirty |= write;
        entry.stamp = own.fetched;
        entry.socket_stamp = self.socket_fetched[usize::from(own.socket)];
        true
    }

    /// Whether a core would get a line from another's cache, or have it taken from there.
    pub(crate) fn is_elsewhere(&self, line: usize, core: u8, write: bool) -> bool {
        let entry = &self.lines[line];
        entry.last != core && entry.dirty || write && entry.others != ALONE
    }

    /// Any access.
    pub(crate) fn serve(&mut self, line: usize, core: u8, write: bool, home: u8) -> Served {
        let socket = self.cores[usize::from(core)].socket;
        let mut entry = self.lines[line];
        let fresh = self.is_fresh(&entry);
        let served = if self.sets.has(&entry, core) && (entry.last != core || fresh) {
            let others = if write { self.sets.sharers(&entry) & !(1 << core) } else { 0 };
            if others != 0 {
                self.sets.take(&mut entry, core, None);
                let own_socket = mask(socket, self.cores_per_socket);
                if others & !own_socket == 0 { Served::Near } else { Served::Far }
            } else {
                self.sets.join(&mut entry, core);
                Served::Private
            }
        } else {
            let from = self.miss(&entry, core, home, fresh);
            match (write, entry.dirty && fresh) {
                (true, _) => self.sets.take(&mut entry, core, None),
                (false, true) => {
                    let owner = entry.last;
                    self.sets.take(&mut entry, core, Some(owner));
                }
                (false, false) => self.sets.join(&mut entry, core),
            }
            entry.dirty = false;
            let own = &mut self.cores[usize::from(core)];
            own.fetched = own.fetched.wrapping_add(1);
            let streamed = !matches!(from, Served::Near | Served::Far) && own.is_ahead(line);
            if streamed { Served::Streamed } else { from }
        };
        entry.dirty |= write;
        entry.stamp = self.cores[usize::from(core)].fetched;
        entry.socket_stamp = self.socket_fetched[usize::from(socket)];
        self.lines[line] = entry;
        served
    }

    /// Whether the core that touched a line last has fetched so little since that it has it.
    fn is_fresh(&self, entry: &Line) -> bool {
        let last = self.cores.get(usize::from(entry.last));
        last.is_some_and(|last| last.fetched.wrapping_sub(entry.stamp) <= self.capacity.private)
    }

    /// From where a core gets a line that it has not.
    fn miss(&mut self, entry: &Line, core: u8, home: u8, fresh: bool) -> Served {
        let socket = self.cores[usize::from(core)].socket;
        let from = match self.cores.get(usize::from(entry.last)) {
            Some(last) => {
                let here = last.socket == socket;
                let fetched = self.socket_fetched[usize::from(last.socket)];
                let age = fetched.wrapping_sub(entry.socket_stamp);
                match (entry.dirty && fresh && entry.last != core, age <= self.capacity.shared) {
                    (true, _) if here => Some(Served::Near),
                    (true, _) => Some(Served::Far),
                    (false, true) if here => Some(Served::Shared),
                    (false, true) if entry.dirty => Some(Served::Far),
                    (false, _) => None,
                }
            }
            None => None,
        };
        from.unwrap_or_else(|| {
            let fetched = &mut self.socket_fetched[usize::from(socket)];
            *fetched = fetched.wrapping_add(1);
            if home == socket { Served::Memory } else { Served::MemoryFar }
        })
    }

    /// A core streams `count` lines of something else through its caches.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn pollute(&mut self, core: u8, count: u32) {
        let core = &mut self.cores[usize::from(core)];
        core.fetched = core.fetched.wrapping_add(count);
        let fetched = &mut self.socket_fetched[usize::from(core.socket)];
        *fetched = fetched.wrapping_add(count);
    }
}

impl Core {
    /// Whether the core missed a line next to this one a moment ago.
    fn is_ahead(&mut self, line: usize) -> bool {
        let line = line as u32;
        let found = self.recent.iter().position(|&miss| miss.abs_diff(line) <= 1);
        let place = found.unwrap_or_else(|| {
            self.next = (self.next + 1) % STREAMS as u8;
            usize::from(self.next)
        });
        self.recent[place] = line;
        found.is_some()
    }
}

/// The cores of a socket.
const fn mask(socket: u8, cores_per_socket: u16) -> u128 {
    let cores = u128::MAX >> (128 - cores_per_socket as u32);
    cores << (socket as u32 * cores_per_socket as u32)
}

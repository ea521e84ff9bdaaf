//! Machines: how many CPUs, how far apart, and what things cost there.
//!
//! A machine is a TOML file. Those of the sources are [built in](builtin); others are
//! [loaded](Machine::load), and what is wrong with one is said with its line and column:
//!
//! ```
//! use zonal_sim::machine::{self, Machine};
//! let machine = machine::builtin("skylake_2s_112cpu").expect("it is built in");
//! assert_eq!(machine.topology.cpus(), 112);
//!
//! let text = machine.to_toml().expect("its values are within their ranges");
//! assert_eq!(Machine::parse(&text, "mine.toml").expect("it reads what it wrote"), machine);
//!
//! let wrong = text.replace("sockets = 2", "sockets = 99");
//! let error = Machine::parse(&wrong, "mine.toml").unwrap_err().to_string();
//! assert!(error.contains("sockets is 99, but must be 1 to 8"), "{error}");
//! ```

mod builtin;
mod parse;
mod rules;

pub use builtin::{TEMPLATE, builtin, builtins};
pub use parse::{Flaw, MachineError};
pub use rules::{MAX_CORES, MAX_SOCKETS, Violation, check_name};

use crate::ticks::Ticks;
use serde::{Deserialize, Serialize};

/// A machine.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What it is called on the command line and in tables.
    pub name: String,
    /// What it is, for a person; no control characters, since it is printed as it is.
    pub title: String,
    /// Where its numbers are from: which are known, which fitted, and on what. Of control characters
    /// only newlines and tabs.
    pub source: String,
    /// Sockets, cores, memory.
    pub topology: Topology,
    /// How fast the cores are.
    pub clock: Clock,
    /// What the caches hold.
    pub cache: Cache,
    /// What accesses and instructions cost.
    pub cost: Cost,
    /// What the work around the allocator costs.
    pub kernel: Kernel,
}

/// Sockets, cores, memory. Every socket is a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Sockets: 1 to 8.
    pub sockets: u16,
    /// Cores of a socket; all sockets together have at most 128.
    pub cores_per_socket: u16,
    /// Hardware threads of a core: 1 or 2.
    pub threads_per_core: u16,
    /// Memory of the whole machine in GiB, the same on each socket.
    pub memory_gib: f64,
}

/// How fast the cores are.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// Frequency of the cycles that everything else is given in, in GHz.
    pub nominal_ghz: f64,
    /// Frequency of a socket with 1, 2, ... busy cores, in GHz, at most ten times the nominal one;
    /// the last is for all further ones.
    pub turbo_ghz: Vec<f64>,
    /// Speed of a hardware thread whose sibling is busy too, as a part of what it has alone:
    /// 0.5 is no gain from the second thread, 1 two whole cores.
    pub sibling_share: f64,
}

/// What the caches hold.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// What a core has for itself, in KiB.
    pub private_kib: u32,
    /// What the cores of a socket share, in KiB.
    pub shared_kib: u32,
    /// Bytes of metadata that the Linux presets keep for each frame, in lines of its own:
    /// a multiple of 64.
    pub struct_page_bytes: u32,
}

/// What accesses and instructions cost, in nominal cycles: each 0.1 to 10⁹.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// A line in the core's own cache.
    pub private: f64,
    /// A clean line in the socket's shared cache.
    pub shared: f64,
    /// A line that another core of the socket has written.
    pub near: f64,
    /// A line that a core of another socket has written or must give up.
    pub far: f64,
    /// A line from the socket's own memory.
    pub memory: f64,
    /// A line from another socket's memory.
    pub memory_far: f64,
    /// A line from memory or the shared cache next to one that the core fetched just before: the prefetcher had it.
    pub streamed: f64,
    /// A locked instruction, beyond the access to its line.
    pub locked: f64,
    /// The instructions around one access to the allocator's metadata.
    pub access: f64,
    /// The instructions to take and release a lock that no other CPU wants, beyond a locked one on its line.
    pub lock: f64,
    /// Disabling and enabling interrupts.
    pub irq_toggle: f64,
    /// Disabling and enabling preemption.
    pub preempt_toggle: f64,
    /// Memory bandwidth of a socket, in GiB a second: 0.2 to 10⁶.
    pub bandwidth_gib_s: f64,
}

/// What the work around the allocator costs, in nominal cycles of one undisturbed CPU: each 0.1 to
/// 10⁹.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// A page fault without allocating, clearing and listing the page: entry, walk, map, exit.
    pub fault: f64,
    /// The same for a huge page.
    pub huge_fault: f64,
    /// Filling a frame with zero bytes, beyond what memory bandwidth asks.
    pub clear_page: f64,
    /// Unmapping a page, without freeing it.
    pub unmap_page: f64,
    /// Mapping or unmapping a range, once.
    pub map_range: f64,
    /// Flushing a TLB, once for each batch of unmapped pages.
    pub tlb_flush: f64,
    /// Interrupting another CPU for that, for each CPU that runs the address space.
    pub tlb_ipi: f64,
    /// Pages handed to the LRU lists at once. How many come off at once is the preset's: 32 or 14.
    pub lru_batch: u32,
    /// Putting a page on an LRU list, under the lock, beyond its lines.
    pub lru_add: f64,
    /// Taking it off, under the lock, beyond its lines.
    pub lru_delete: f64,
    /// What is done to a page when its file is truncated, besides what the page cache and the allocator do.
    pub truncate_page: f64,
    /// Moving a page, beyond copying it and its lists: finding and changing who maps it, flushing
    /// their TLBs, its place in the page cache.
    pub move_page: f64,
    /// Taking or releasing the address-space lock, beyond a locked instruction on its line.
    pub space_lock: f64,
    /// Waking a sleeper, and its way back to the CPU, at the nominal clock.
    pub wake: f64,
    /// What a compiler does for itself between two page faults.
    pub compute: f64,
    /// How far apart the tasks of a benchmark begin, in parts of a cycle: 0 when they keep in
    /// step, as a fair lock makes them that they all wait for, 1 when each is anywhere. Below 1
    /// whole cycles are simulated (see `page-fault1`).
    pub spread: f64,
}

impl Topology {
    /// CPUs, which is hardware threads, of the whole machine.
    ///
    /// CPUs are numbered as Linux numbers them on these machines: first one hardware thread of
    /// every core, socket by socket, then the second threads in the same order.
    ///
    /// ```
    /// let broadwell = zonal_sim::machine::builtin("broadwell_2s_40cpu").expect("it is built in");
    /// let topology = broadwell.topology;
    /// assert_eq!((topology.cpus(), topology.cores()), (40, 20));
    /// assert_eq!((topology.core_of(12), topology.socket_of(12)), (12, 1));
    /// assert_eq!((topology.core_of(32), topology.sibling_of(32)), (12, Some(12)));
    /// ```
    #[must_use]
    pub const fn cpus(&self) -> u32 {
        self.cores() * self.threads_per_core as u32
    }

    /// Cores of the whole machine.
    #[must_use]
    pub const fn cores(&self) -> u32 {
        self.sockets as u32 * self.cores_per_socket as u32
    }

    /// The core of a CPU, counted over the whole machine. A CPU the machine does not have is
    /// taken as a further thread of one of its cores.
    #[must_use]
    pub const fn core_of(&self, cpu: u32) -> u32 {
        match cpu.checked_rem(self.cores()) {
            Some(core) => core,
            None => 0,
        }
    }

    /// The socket of a CPU, which is its NUMA node.
    #[must_use]
    pub const fn socket_of(&self, cpu: u32) -> u32 {
        match self.core_of(cpu).checked_div(self.cores_per_socket as u32) {
            Some(socket) => socket,
            None => 0,
        }
    }

    /// Frames of 4 KiB.
    pub(crate) fn frames(&self) -> u64 {
        (self.memory_gib * f64::from(1u32 << 18)) as u64
    }

    /// Frames of 4 KiB that each socket has.
    pub(crate) fn frames_a_socket(&self) -> u64 {
        self.frames() / u64::from(self.sockets.max(1))
    }

    /// Frames of a socket for a workload that takes `each` for a task: what a task on every CPU takes,
    /// whatever `tasks` there are, so that caches are as large as the machine has them; what the machine
    /// has, if that is less; and at least what these tasks take.
    pub(crate) fn frames_for_all(&self, tasks: u32, each: u64) -> u64 {
        let [all, these] = [self.cpus(), tasks].map(|tasks| self.on_one_socket(tasks) * each);
        all.min(self.frames_a_socket()).max(these)
    }

    /// How many of `tasks` tasks may be on one socket.
    pub(crate) fn on_one_socket(&self, tasks: u32) -> u64 {
        u64::from(tasks.min(self.cpus() / u32::from(self.sockets)))
    }

    /// The other hardware thread of a CPU's core; `None` if there is no other, or no such CPU.
    #[must_use]
    pub const fn sibling_of(&self, cpu: u32) -> Option<u32> {
        if self.threads_per_core != 2 || cpu >= self.cpus() {
            return None;
        }
        let cores = self.cores();
        Some(if cpu < cores { cpu + cores } else { cpu - cores })
    }
}

impl Clock {
    /// How fast a core runs in a socket with `busy_cores_of_socket` busy cores, its own included,
    /// as a multiple of the nominal frequency; a busy hardware thread makes its core busy. None
    /// counts as one. Constant time.
    ///
    /// ```
    /// let machine = zonal_sim::machine::builtin("broadwell_2s_40cpu").expect("it is built in");
    /// assert!(machine.clock.speed(1) > machine.clock.speed(10));
    /// assert_eq!(machine.clock.speed(10), machine.clock.speed(1000));
    /// ```
    #[must_use]
    pub fn speed(&self, busy_cores_of_socket: u32) -> f64 {
        let index =
            (busy_cores_of_socket.max(1) as usize - 1).min(self.turbo_ghz.len().saturating_sub(1));
        self.turbo_ghz.get(index).map_or(1.0, |turbo| turbo / self.nominal_ghz)
    }

    /// Seconds of a time.
    pub(crate) fn seconds(&self, time: Ticks) -> f64 {
        time.0 as f64 / (Ticks::PER_CYCLE as f64 * self.nominal_ghz * 1e9)
    }

    /// Nanoseconds of a time.
    pub(crate) fn ns(&self, time: Ticks) -> f64 {
        time.exact_cycles() / self.nominal_ghz
    }

    /// The time of `seconds`.
    pub(crate) fn of_seconds(&self, seconds: f64) -> Ticks {
        Ticks::from_cycles(seconds * self.nominal_ghz * 1e9)
    }

    /// The time of `ms` milliseconds.
    pub(crate) fn of_ms(&self, ms: f64) -> Ticks {
        Ticks::from_cycles(ms * self.nominal_ghz * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_machines_whatever_the_tasks() {
        let machine = builtin("skylake_2s_112cpu").expect("it is built in");
        let of = |tasks| machine.topology.frames_for_all(tasks, 40_960);
        // 160 MiB for each of 56 CPUs of a socket.
        assert_eq!([1, 8, 14, 56, 112].map(of), [56 * 40_960; 5]);
        let mut small = machine.clone();
        small.topology.memory_gib = 2.0;
        let of = |tasks| small.topology.frames_for_all(tasks, 40_960);
        assert_eq!((of(1), of(2)), (1 << 18, 1 << 18), "what there is");
        assert_eq!(of(112), 56 * 40_960, "and what is needed, which is refused elsewhere");
    }

    #[test]
    fn times_there_and_back() {
        let clock = Clock { nominal_ghz: 2.0, turbo_ghz: vec![3.0], sibling_share: 0.6 };
        assert_eq!(clock.of_ms(1.5), Ticks::from_cycles(3e6));
        assert_eq!(clock.of_seconds(1.5), Ticks::from_cycles(3e9));
        assert!((clock.seconds(clock.of_seconds(0.25)) - 0.25).abs() < 1e-12);
        assert!((clock.ns(clock.of_ms(0.25)) - 250_000.0).abs() < 1e-6);
        let part = Ticks::from_cycles(7.5);
        assert!((clock.ns(part) - 3.75).abs() < 1e-12, "fractions of a cycle count");
        assert!((clock.ns(part.whole()) - 3.5).abs() < 1e-12);
    }
}

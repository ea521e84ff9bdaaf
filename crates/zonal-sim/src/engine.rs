//! The state of a running machine: clocks, lines, who is next, and what was counted.
//!
//! There is one machine a thread, so that the allocator's atomics, which know of no host, find
//! it. Without one, or outside a virtual CPU, accesses cost nothing: that is how memory is set up.

mod prefetch;

use crate::cache::CacheHost;
use crate::channel::Channel;
use crate::host::Host;
use crate::lines::{Capacity, LINE, Lines, Served};
use crate::machine::{Machine, Topology};
use crate::profile::{Measured, Phase};
use crate::run::SimError;
use crate::schedule::Schedule;
use crate::space::{Class, Home, Layout, Place, Range, Space};
use crate::speeds::Speeds;
use crate::ticks::Ticks;
use crate::transfers::Transfers;
use core::cell::{Cell, RefCell};
use std::rc::Rc;

thread_local! {
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
    /// Accesses that are left while no other CPU goes on; 0 while others do.
    static QUIET: Cell<u64> = const { Cell::new(0) };
}

/// From now on accesses are free and no other CPU goes on, for `accesses` of them; 0: as it was. Returns how
/// many were left before.
pub(crate) fn set_quiet(accesses: u64) -> u64 {
    QUIET.replace(accesses)
}

/// Whether an access is free. Panics at the last of those that may be.
#[inline]
pub(crate) fn is_quiet() -> bool {
    let left = QUIET.get();
    if left == 0 {
        return false;
    }
    QUIET.set(left - 1);
    // Only a panic leads out of here; the first is enough.
    assert!(left > 1, "no end of what is done alone");
    true
}

/// How far a CPU may run ahead of the next one before it lets that go on, where nothing that
/// they do touches: 5,000 cycles.
const LOOKAHEAD: Ticks = Ticks(5_000 * Ticks::PER_CYCLE);

/// After this long even a CPU with no other beside it comes back to the stopwatch: 50,000 cycles.
const LONGEST_TURN: Ticks = Ticks(50_000 * Ticks::PER_CYCLE);

/// An access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Load,
    Store,
    /// A locked instruction.
    Update,
}

/// What a CPU does before an access of its, which is charged but for the line itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing.
    Goes,
    /// It lets others go on.
    Pauses,
    /// It lets others go on that are behind it, and [asks](Engine::ask) for the line in its turn.
    Asks,
}

/// What a virtual CPU is.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    pub(crate) clock: Ticks,
    pub(crate) core: u8,
    pub(crate) socket: u8,
    /// Whether it counts as one that has nothing to run.
    asleep: bool,
    pub(crate) phase: Phase,
    /// Locks it holds; it is not interrupted while it holds one.
    pub(crate) holding: u32,
    /// Whether its body has returned.
    pub(crate) done: bool,
}

/// Costs in ticks.
#[derive(Clone, Copy, Debug)]
struct Costs {
    served: [Ticks; Served::COUNT],
    access: Ticks,
    locked: Ticks,
}

/// The machine that runs on this thread.
pub(crate) struct Engine {
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) current: Option<usize>,
    /// Who runs next, if that is known already.
    pub(crate) next: Option<usize>,
    pub(crate) schedule: Schedule,
    pub(crate) measured: Measured,
    pub(crate) slot_entry: Ticks,
    pub(crate) lock_cost: Ticks,
    /// What all CPUs have waited for lines that were not in their core's own cache.
    pub(crate) brought: Ticks,
    pub(crate) stopped: bool,
    /// Blocks that tasks on virtual CPUs allocated and freed.
    pub(crate) page_operations: u64,
    /// Frames that the workload took and has not given back.
    pub(crate) taken: i64,
    /// Who answers the allocator's callbacks.
    pub(crate) host: Option<Rc<dyn Host>>,
    /// When the CPU that runs was resumed, by its clock.
    pub(crate) turn_began: Ticks,
    /// What a page cache asks of its host.
    pub(crate) cache: CacheHost,
    pub(crate) space: Space,
    lines: Lines,
    transfers: Transfers,
    channels: Vec<Channel>,
    costs: Costs,
    speeds: Speeds,
}

/// Runs `f` with the engine of this thread; `None` if there is none.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&mut Engine) -> R) -> Option<R> {
    ENGINE.with(|engine| engine.borrow_mut().as_mut().map(f))
}

/// Runs `f` with the engine if a virtual CPU is running; `None` during set-up.
#[inline]
pub(crate) fn with_cpu<R>(f: impl FnOnce(&mut Engine, usize) -> R) -> Option<R> {
    ENGINE.with(|engine| {
        let mut engine = engine.borrow_mut();
        let engine = engine.as_mut()?;
        let cpu = engine.current?;
        Some(f(engine, cpu))
    })
}

/// The CPU that runs; during set-up that for which something is [set up](set_up_for), or the first.
pub(crate) fn cpu() -> u32 {
    with(|engine| engine.current.map_or(engine.cache.set_up, |cpu| cpu as u32)).unwrap_or(0)
}

/// Until this is called again set-up is that of a CPU.
pub(crate) fn set_up_for(cpu: u32) {
    with(|engine| engine.cache.set_up = cpu);
}

/// The clock of the CPU that runs; the beginning during set-up.
pub(crate) fn now() -> Ticks {
    with_cpu(|engine, cpu| *engine.clock(cpu)).unwrap_or_default()
}

/// Puts a machine on this thread, until [`Installed`] is dropped.
pub(crate) fn install(engine: Engine) -> Installed {
    ENGINE.with(|place| {
        let mut place = place.borrow_mut();
        assert!(place.is_none(), "one machine a thread");
        *place = Some(engine);
    });
    Installed
}

/// The machine is on this thread.
pub(crate) struct Installed;

impl Drop for Installed {
    fn drop(&mut self) {
        ENGINE.with(|place| place.borrow_mut().take());
    }
}

impl Engine {
    /// A machine with one virtual CPU for each task.
    pub(crate) fn new(machine: &Machine, tasks: u32, schedule: Schedule) -> Self {
        let topology = &machine.topology;
        let cost = &machine.cost;
        let ticks = Ticks::from_cycles;
        let served = [
            cost.private,
            cost.shared,
            cost.near,
            cost.far,
            cost.memory,
            cost.memory_far,
            cost.streamed,
        ];
        let lines_a_second = cost.bandwidth_gib_s * f64::from(1 << 30) / LINE as f64;
        let line = ticks(machine.clock.nominal_ghz * 1e9 / lines_a_second);
        Self {
            cpus: (0..tasks).map(|cpu| Cpu::new(topology, cpu)).collect(),
            current: None,
            next: None,
            schedule,
            measured: Measured::default(),
            slot_entry: ticks(cost.irq_toggle),
            lock_cost: ticks(cost.lock),
            brought: Ticks::default(),
            stopped: false,
            page_operations: 0,
            taken: 0,
            host: None,
            turn_began: Ticks::default(),
            cache: CacheHost::new(machine, tasks),
            space: Space::new(usize::from(topology.sockets)),
            lines: Lines::new(topology, Capacity::of(&machine.cache)),
            transfers: Transfers::new(),
            channels: (0..topology.sockets).map(|_| Channel::new(line)).collect(),
            speeds: Speeds::new(machine, tasks),
            costs: Costs {
                served: served.map(ticks),
                access: ticks(cost.access),
                locked: ticks(cost.locked),
            },
        }
    }

    /// Adds lines that belong to no address of the host: `struct page`s. Returns the first.
    pub(crate) fn grow(&mut self, count: usize) -> usize {
        self.lines.grow(count)
    }

    /// The same for those of all of memory.
    pub(crate) fn try_grow(&mut self, count: usize) -> Result<usize, SimError> {
        self.lines.try_grow(count)
    }

    /// Makes a slice of host memory known.
    pub(crate) fn register<T>(
        &mut self,
        class: &'static str,
        slice: &[T],
        layout: Layout,
        home: Home,
    ) {
        let bytes = size_of_val(slice);
        if bytes == 0 {
            return;
        }
        let start = slice.as_ptr().addr();
        let first = match layout {
            Layout::Packed => self.lines.grow(bytes.div_ceil(LINE)),
            Layout::Spread { .. } => 0,
            Layout::ByFrame { frames, .. } => {
                self.space.expect_frames(slice.len(), frames);
                0
            }
        };
        let class = self.class(class);
        let place = (start, bytes, size_of::<T>());
        self.space.add(Range::new(place, class, layout, home, first));
    }

    /// The number of a class of lines.
    pub(crate) fn class(&mut self, class: &'static str) -> u8 {
        let number = self.space.class(Class(class));
        self.measured.expect(class, number);
        number
    }

    /// The class of what is at `address`, and which of its items that is.
    pub(crate) fn item_at(&self, address: usize) -> Option<(u8, u32)> {
        self.space.item(address)
    }

    /// The clock of the CPU that runs.
    pub(crate) fn clock(&mut self, cpu: usize) -> &mut Ticks {
        &mut self.cpus[cpu].clock
    }

    /// Instructions that touch nothing shared.
    #[inline]
    pub(crate) fn spend(&mut self, cpu: usize, time: Ticks) {
        let cpu = &mut self.cpus[cpu];
        cpu.clock += time.slowed(self.speeds.slowness(cpu.core));
    }

    /// An access to what a lock keeps in order. Returns whether others should go on first.
    pub(crate) fn touch_ordered(&mut self, cpu: usize, address: usize, access: Access) -> bool {
        self.touch::<false>(cpu, address, access) != Before::Goes
    }

    /// An access to the allocator's memory, and what is to be done first. `QUEUES`: for a line that is on its
    /// way to another core, unless the CPU holds a lock: then it is ahead of all others, and would have
    /// them wait for what is to come.
    ///
    /// Nearly all of a simulation's time is spent here, so what is usual is kept short.
    #[inline(always)]
    pub(crate) fn touch<const QUEUES: bool>(
        &mut self,
        cpu: usize,
        address: usize,
        access: Access,
    ) -> Before {
        if let Schedule::Random(random) = &mut self.schedule {
            // What it costs plays no part.
            return if random.switches() { Before::Pauses } else { Before::Goes };
        }
        let place = self.space.place(address);
        let who = &mut self.cpus[cpu];
        let slowness = self.speeds.slowness(who.core);
        let mut clock = who.clock + self.costs.access.slowed(slowness);
        if access == Access::Update {
            clock += self.costs.locked.slowed(slowness);
        }
        let private = self.costs.served[Served::Private as usize].slowed(slowness);
        if let Some(Place { line, class }) = place {
            let write = access != Access::Load;
            // Others want a line that travels: none has it for longer than an update takes.
            let travels = QUEUES && access == Access::Update && self.transfers.travels(line, clock);
            if travels || !self.lines.again(line, who.core, write) {
                who.clock = clock;
                return self.touch_other(cpu, address, access, (QUEUES, travels));
            }
            self.measured.line(class, Served::Private, private);
        }
        who.clock = clock + private;
        let (clock, holding) = (who.clock, who.holding);
        self.switches(clock, holding, false)
    }

    /// The rest of [`touch`](Self::touch) where another core touched the line meanwhile.
    #[inline(never)]
    fn touch_other(
        &mut self,
        cpu: usize,
        address: usize,
        access: Access,
        (queues, travels): (bool, bool),
    ) -> Before {
        let Some(Place { line, class }) = self.space.place(address) else { return Before::Goes };
        let (write, &Cpu { core, holding, .. }) = (access != Access::Load, &self.cpus[cpu]);
        let queues = queues && holding == 0;
        if queues && (travels || self.lines.is_elsewhere(line, core, write)) {
            if self.is_ahead(cpu) {
                return Before::Asks;
            }
            self.ask(cpu, address, access);
            return Before::Goes;
        }
        let home = self.space.home(address).unwrap_or(self.cpus[cpu].socket);
        let met = self.serve(cpu, line, class, write, home);
        let Cpu { clock, holding, .. } = self.cpus[cpu];
        self.switches(clock, holding, matches!(met, Served::Near | Served::Far))
    }

    /// A CPU asks for a line, not before all others that ask earlier, and waits while that is on its way to
    /// another.
    pub(crate) fn ask(&mut self, cpu: usize, address: usize, access: Access) {
        let Some(Place { line, class }) = self.space.place(address) else { return };
        let home = self.space.home(address).unwrap_or(self.cpus[cpu].socket);
        let asked = self.cpus[cpu].clock;
        let sent = self.transfers.sent(line, asked);
        self.cpus[cpu].clock = sent;
        self.measured.queued(class, sent.since(asked));
        let met = self.serve(cpu, line, class, access != Access::Load, home);
        if matches!(met, Served::Near | Served::Far) {
            self.transfers.arrives(line, self.cpus[cpu].clock);
        }
    }

    /// Whether others should go on before an access of a CPU, which meets another's line or not.
    #[inline]
    fn switches(&mut self, clock: Ticks, holding: u32, meeting: bool) -> Before {
        let switches = holding == 0 && self.schedule.switches_at(meeting, clock, LOOKAHEAD);
        if switches { Before::Pauses } else { Before::Goes }
    }

    /// A CPU is idle from now on, or busy again: others of the socket run faster, or slower. Waiting for an
    /// address space or inside of a page cache is idle, and all else busy.
    pub(crate) fn sleeps(&mut self, cpu: usize, asleep: bool) {
        let cpu = &mut self.cpus[cpu];
        if cpu.asleep != asleep {
            cpu.asleep = asleep;
            self.speeds.change(cpu.core, cpu.socket, !asleep);
        }
    }

    /// CPUs that count as busy.
    pub(crate) const fn busy(&self) -> u32 {
        self.speeds.busy
    }

    /// Whether a CPU is so far ahead of the next one that this should go on first.
    pub(crate) fn is_early(&mut self, cpu: usize) -> bool {
        let cpu = &self.cpus[cpu];
        cpu.holding == 0
            && (cpu.clock.since(self.turn_began) > LONGEST_TURN
                || self.schedule.switches_at(false, cpu.clock, LOOKAHEAD))
    }

    /// Whether others come before a CPU, however little they are behind.
    pub(crate) fn is_ahead(&mut self, cpu: usize) -> bool {
        let Cpu { clock, holding, .. } = self.cpus[cpu];
        (holding == 0 || self.schedule.is_random())
            && self.schedule.switches_at(true, clock, Ticks::default())
    }

    /// Charges an access to a line, on the socket that `home` says.
    #[inline]
    pub(crate) fn touch_line(
        &mut self,
        cpu: usize,
        line: usize,
        class: u8,
        write: bool,
        home: impl FnOnce() -> u8,
    ) {
        let core = self.cpus[cpu].core;
        if self.lines.again(line, core, write) {
            let private = self.costs.served[Served::Private as usize];
            let time = private.slowed(self.speeds.slowness(core));
            self.cpus[cpu].clock += time;
            self.measured.line(class, Served::Private, time);
        } else {
            self.serve(cpu, line, class, write, home());
        }
    }

    /// The same, if it is not simply one more of the same CPU.
    fn serve(&mut self, cpu: usize, line: usize, class: u8, write: bool, home: u8) -> Served {
        let before = self.cpus[cpu].clock;
        let served = self.bring(cpu, line, write, home);
        let time = self.cpus[cpu].clock - before;
        self.measured.line(class, served, time);
        if served != Served::Private {
            self.brought += time;
        }
        served
    }

    /// A CPU's core gets a line, and the CPU waits for it. What that took is counted by the caller.
    fn bring(&mut self, cpu: usize, line: usize, write: bool, home: u8) -> Served {
        let (core, before) = (self.cpus[cpu].core, self.cpus[cpu].clock);
        let served = self.lines.serve(line, core, write, home);
        let cost = self.costs.served[served as usize];
        if served == Served::Private {
            self.spend(cpu, cost);
        } else {
            self.cpus[cpu].clock += cost;
            if matches!(served, Served::Memory | Served::MemoryFar | Served::Streamed) {
                let wait = self.channels[usize::from(home)].fetch(self.turn_began, before, 1);
                self.cpus[cpu].clock += wait;
            }
        }
        served
    }

    /// A core writes `lines` lines that it has not, one after the other, and pushes as many out.
    pub(crate) fn stream(&mut self, cpu: usize, lines: u32) {
        let Cpu { core, socket, clock, .. } = self.cpus[cpu];
        self.lines.pollute(core, lines);
        let began = self.turn_began;
        self.cpus[cpu].clock += self.channels[usize::from(socket)].fetch(began, clock, lines);
    }
}

impl Cpu {
    fn new(topology: &Topology, cpu: u32) -> Self {
        Self {
            clock: Ticks::default(),
            core: topology.core_of(cpu) as u8,
            socket: topology.socket_of(cpu) as u8,
            asleep: false,
            phase: Phase::Other,
            holding: 0,
            done: false,
        }
    }
}

//! What things cost on a machine in the making.

use zonal_sim::machine::{Cost, Kernel};

use super::describe::{Origin, REFERENCE, sensible};
use super::draft::{Draft, Ticking, rounded};
use super::error::CalibrateError;
use super::quantity::Quantity;

/// Of the accesses to a core's own cache, the part that the innermost one does not answer. The
/// simulator knows one level; an allocator's hot lines are few.
const NOT_INNERMOST: f64 = 0.15;

/// Up to this many CPUs, tasks hardly wait for each other, as in the published rates of a
/// machine with as many (`broadwell_2s_40cpu`), and drift apart. With more they all wait for the
/// zone lock, which keeps them in step, as those of the reference do.
const DRIFTING_CPUS: u32 = 40;

impl Draft<'_> {
    pub(super) fn cost(&mut self, sockets: u16) -> Result<Cost, CalibrateError> {
        use Ticking::{Core, Nominal};
        let inner = sensible("a load from cache", self.median(Quantity::Inner))?;
        let outer = sensible("a load from the private cache", self.median(Quantity::Private))?;
        let own = inner + NOT_INNERMOST * (outer - inner).max(0.0);
        let lost = self.lost(&[Quantity::Inner, Quantity::Private]);
        let remark =
            format!("{inner:.1} ns innermost, {outer:.1} ns all of it; mostly the former{lost}");
        self.say("cost", "private", Origin::Measured, remark);
        let old = self.reference.cost;
        let private = rounded(own * self.core_ghz);
        let shared = self.value(
            ("cost", "shared"),
            (Quantity::Shared, Nominal),
            (0.0, "chained loads"),
            old.shared,
        );
        let (near, far) = self.lines(sockets, shared, private);
        let memory = self.value(
            ("cost", "memory"),
            (Quantity::Memory, Nominal),
            (0.0, "chained loads"),
            old.memory,
        );
        let memory_far = self.memory_far(sockets, memory);
        let update = self.median(Quantity::Locked).unwrap_or(inner);
        let mut one = |key, quantity, ticking, less, what: &str, default| {
            self.value(("cost", key), (quantity, ticking), (less, what), default)
        };
        let streamed = one(
            "streamed",
            Quantity::Streamed,
            Nominal,
            0.0,
            "chained loads in order",
            old.streamed,
        );
        let add = "a locked add less the load of its line";
        let locked = one("locked", Quantity::Locked, Core, inner, add, old.locked);
        // A simulated lock pays for a locked instruction on its line besides.
        let pair = "a spinlock taken and released, less a locked add";
        let lock = self.beside_update(("cost", "lock"), (Quantity::Lock, update), pair, old.lock);
        let preempt_toggle = self.value(
            ("cost", "preempt_toggle"),
            (Quantity::Counter, Core),
            (0.0, "a counter of its own line, up and down"),
            old.preempt_toggle,
        );
        let access =
            self.default(("cost", "access"), "part of the model, not of the machine", old.access);
        let why = "user space cannot disable interrupts";
        let irq_toggle = self.default(("cost", "irq_toggle"), why, old.irq_toggle);
        let bandwidth_gib_s = self.bandwidth(old.bandwidth_gib_s);
        Ok(Cost {
            private,
            shared,
            near,
            far,
            memory,
            memory_far,
            streamed,
            locked,
            access,
            lock,
            irq_toggle,
            preempt_toggle,
            bandwidth_gib_s,
        })
    }

    /// Lines that another core has written: near and far.
    ///
    /// In one socket `far` has no use, but a virtual machine's CPUs may be far apart in one.
    fn lines(&mut self, sockets: u16, shared: f64, private: f64) -> (f64, f64) {
        let have = |quantity| self.figure(quantity).is_some();
        let of_one_core = self.is_of_one_core(private);
        let have_near = have(Quantity::NearLine) && !of_one_core;
        let have_far = have(Quantity::FarLine);
        let measured = if have_near {
            Some((Quantity::NearLine, "chained loads of lines another core wrote"))
        } else if sockets == 1 && have_far {
            let what = "lines another CPU wrote; they shared no cache all the while";
            Some((Quantity::FarLine, what))
        } else {
            None
        };
        let old = self.reference.cost;
        let near = if let Some((quantity, what)) = measured {
            let by = (quantity, Ticking::Nominal);
            self.value(("cost", "near"), by, (0.0, what), old.near)
        } else {
            let why = match of_one_core {
                true => "CPUs of one core, whose cache has what either wrote",
                false => "no two cores to measure",
            };
            self.proportion("near", why, ("shared", shared, old.near / old.shared))
        };
        let by = (Quantity::FarLine, Ticking::Nominal);
        let far = if sockets > 1 && have_far {
            let what = "chained loads of lines another socket wrote";
            self.value(("cost", "far"), by, (0.0, what), old.far)
        } else if sockets == 1 && have_near && have_far {
            let what = "lines of CPUs that shared no cache then; not used: one socket";
            self.value(("cost", "far"), by, (0.0, what), old.far)
        } else {
            let why =
                if sockets == 1 { "not used: one socket" } else { "no two sockets to measure" };
            self.proportion("far", why, ("near", near, old.far / old.near))
        };
        (near, far)
    }

    /// Whether a line that the other CPU wrote costs no more than one of the core's own cache: both are of one core, though
    /// a hypervisor may say that they are of two.
    fn is_of_one_core(&self, private: f64) -> bool {
        let near = self.median(Quantity::NearLine);
        let cycles = self.cycles(Quantity::NearLine, 0.0, Ticking::Nominal);
        near.zip(self.median(Quantity::Private)).is_some_and(|(near, own)| near <= own)
            || cycles.is_some_and(|cycles| cycles <= private)
    }

    /// A default that has the same proportion to another value as on the reference.
    fn proportion(&mut self, key: &'static str, why: &str, of: (&str, f64, f64)) -> f64 {
        let (name, value, times) = of;
        let remark = format!("{name} times {times:.1}, as on {REFERENCE}; {why}");
        self.say("cost", key, Origin::Default, remark);
        rounded(value * times)
    }

    fn memory_far(&mut self, sockets: u16, memory: f64) -> f64 {
        let old = self.reference.cost;
        if sockets > 1 && self.figure(Quantity::MemoryFar).is_some() {
            let by = (Quantity::MemoryFar, Ticking::Nominal);
            let what = "chained loads of another socket's memory";
            return self.value(("cost", "memory_far"), by, (0.0, what), old.memory_far);
        }
        let why = if sockets == 1 { "not used: one socket" } else { "no two sockets to measure" };
        self.proportion("memory_far", why, ("memory", memory, old.memory_far / old.memory))
    }

    /// The most that the CPUs of a socket moved: they need not have had all there is.
    fn bandwidth(&mut self, default: f64) -> f64 {
        let rate = |quantity, times: f64| self.median(quantity).map_or(0.0, |rate| rate * times);
        // A copy reads as much as it writes.
        let rates =
            [(Quantity::ReadRate, 1.0), (Quantity::ClearRate, 1.0), (Quantity::CopyRate, 2.0)];
        let most = rates.map(|(quantity, times)| rate(quantity, times));
        let most = most.into_iter().fold(0.0, f64::max);
        if most <= 0.0 {
            return self.default(("cost", "bandwidth_gib_s"), "no rate was measured", default);
        }
        let cpus = self.survey.together.len();
        let lost = self.lost(&rates.map(|(quantity, _)| quantity));
        let remark =
            format!("the most of reading, clearing, copying on {cpus} cores: a lower bound{lost}");
        self.say("cost", "bandwidth_gib_s", Origin::Measured, remark);
        rounded(most)
    }

    pub(super) fn kernel(&mut self, cpus: u32) -> Kernel {
        use Ticking::{Core, Nominal};
        let old = self.reference.kernel;
        let unmap_ns = self.median(Quantity::UnmapZero).unwrap_or(0.0);
        let nothing = self.median(Quantity::DropNone).unwrap_or(0.0);
        let inner = self.median(Quantity::Inner).unwrap_or(0.0);
        let update = self.median(Quantity::Locked).unwrap_or(inner);
        let read_lock = self.median(Quantity::ReadLock).unwrap_or(0.0);
        let wake = [Quantity::WakeAcross, Quantity::WakeHere];
        let wake = wake.into_iter().find(|&it| self.figure(it).is_some());
        let wake = wake.unwrap_or(Quantity::WakeHere);
        let mut one = |key, quantity, less, what: &str, default| {
            self.value(("kernel", key), (quantity, Core), (less, what), default)
        };
        let zero = "mapping the zero page at the first read";
        let fault = one("fault", Quantity::ReadFault, 0.0, zero, old.fault);
        let huge = "mapping the huge zero page";
        let huge_fault = one("huge_fault", Quantity::HugeFault, 0.0, huge, old.huge_fault);
        let clear = "4 KiB after 4 KiB of memory";
        let clear_page = one("clear_page", Quantity::ClearCold, 0.0, clear, old.clear_page);
        let unmap = "zero pages unmapped, many at once";
        let unmap_page = one("unmap_page", Quantity::UnmapZero, 0.0, unmap, old.unmap_page);
        let range = "half of mapping and unmapping 1 MiB without pages";
        let map_range = one("map_range", Quantity::MapRange, 0.0, range, old.map_range);
        let flush = "giving up one page, less the call and the unmapping";
        let tlb_flush =
            one("tlb_flush", Quantity::DropOne, nothing + unmap_ns, flush, old.tlb_flush);
        let half = "half of a read lock and unlock in user space, less a locked add";
        let beside = (Quantity::ReadLock, read_lock / 2.0 + update);
        let space_lock = self.beside_update(("kernel", "space_lock"), beside, half, old.space_lock);
        let woken = "half of waking there and back, with the sleep between";
        // The sleep is no CPU's: it does not follow the clock of a core.
        let wake = self.value(("kernel", "wake"), (wake, Nominal), (0.0, woken), old.wake);
        let mut not = |key, why, value| self.default(("kernel", key), why, value);
        let tlb_ipi = not("tlb_ipi", "user space cannot interrupt a CPU", old.tlb_ipi);
        let lists = "user space has no LRU lists";
        let lru_add = not("lru_add", lists, old.lru_add);
        let lru_delete = not("lru_delete", lists, old.lru_delete);
        let tree = "user space has no page cache of its own";
        let truncate_page = not("truncate_page", tree, old.truncate_page);
        let move_page = not("move_page", "user space cannot move pages", old.move_page);
        let lru_batch = old.lru_batch;
        not("lru_batch", "what Linux 4.15 to 6.5 hand over at once", f64::from(lru_batch));
        let compute = not("compute", "of programs, not of the machine", old.compute);
        let spread = self.spread(cpus, old.spread);
        Kernel {
            fault,
            huge_fault,
            clear_page,
            unmap_page,
            map_range,
            tlb_flush,
            tlb_ipi,
            lru_batch,
            lru_add,
            lru_delete,
            truncate_page,
            move_page,
            space_lock,
            wake,
            compute,
            spread,
        }
    }

    /// How far apart tasks begin: of the benchmark and of how long its tasks wait.
    fn spread(&mut self, cpus: u32, default: f64) -> f64 {
        if cpus > DRIFTING_CPUS {
            let why = "of the benchmark and of how long its tasks wait";
            return self.default(("kernel", "spread"), why, default);
        }
        let why = format!("tasks on up to {DRIFTING_CPUS} CPUs hardly wait, and drift apart");
        self.say("kernel", "spread", Origin::Default, why);
        1.0
    }
}

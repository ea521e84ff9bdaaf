//! A task that sleeps until another wakes it.

use crate::coroutine;
use crate::engine;
use crate::ticks::Ticks;
use core::cell::Cell;

/// Where one task sleeps.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    cpu: Cell<Option<usize>>,
}

impl Sleeper {
    /// The CPU that runs sleeps until it is woken. The caller has looked, without a
    /// pause since, that there is nothing to do. Meanwhile it counts as busy.
    pub(crate) fn sleep(&self) {
        let sleeps = engine::with_cpu(|_, cpu| self.cpu.set(Some(cpu)));
        if sleeps.is_some() {
            coroutine::switch();
        }
    }

    /// Wakes it, if it sleeps; it goes on `after` from now, by the clock of the CPU that wakes it.
    pub(crate) fn wake(&self, after: Ticks) {
        let Some(sleeping) = self.cpu.take() else { return };
        engine::with(|engine| {
            let now = engine.current.map(|cpu| engine.cpus[cpu].clock).unwrap_or_default();
            let clock = engine.clock(sleeping);
            *clock = (*clock).max(now + after);
            let clock = *clock;
            engine.schedule.push(sleeping, clock);
        });
    }
}

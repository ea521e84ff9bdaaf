//! What freeing the pages of a file takes under a kernel: simulated with the real allocator, by
//! [`zonal_sim`], and handed to the model of the page cache.
//!
//! ```
//! use zonal_iobench::freeing::page_cost;
//! use zonal_iobench::kernel::Kernel;
//!
//! let of = |name| page_cost(&Kernel::named(name).expect("it is in the tables"));
//! assert!(of("one_irq")? < of("base")?, "interrupts are turned off once for a list");
//! # Ok::<(), zonal_iobench::error::IobenchError>(())
//! ```

use zonal_cfq::units::Span;
use zonal_scenario::preset::Preset;
use zonal_scenario::truncate::{PAGES, Statistic};
use zonal_sim::machine::{self, Machine};
use zonal_sim::outcome::Outcome;
use zonal_sim::run::{LruLock, Spec, Workload};

use crate::error::IobenchError;
use crate::kernel::Kernel;
use crate::machine::{self as io, COSTS};
use crate::many_files::{Bonnie, Pass};
use crate::simulated::{self, BonnieCase, RemovalCosts};

/// The machine of the simulator that stands for the one of 2017.
pub const MACHINE: &str = "desktop_8cpu_4g";

/// sparsetruncate under a preset on a machine of the simulator: the figures of [`Statistic::ALL`].
///
/// # Errors
///
/// [`IobenchError::Simulator`] if it has no such machine, or the machine no room.
pub fn sparsetruncate(machine: &str, preset: Preset, seed: u64) -> Result<Outcome, IobenchError> {
    let machine = machine_called(machine)?;
    let (workload, lru) = (Workload::Truncate, LruLock::of(preset));
    let spec = Spec {
        workload,
        preset,
        tasks: 1,
        seed,
        lru,
        delay_ms: 0,
        quick: false,
        after: None,
        regions: None,
    };
    zonal_sim::run::run(&machine, &spec).map_err(|error| IobenchError::Simulator(error.to_string()))
}

fn machine_called(name: &str) -> Result<Machine, IobenchError> {
    machine::builtin(name).ok_or_else(|| {
        let known = machine::builtins().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        IobenchError::UnknownMachine { name: name.into(), known }
    })
}

/// What a cached page takes to leave the page cache and be freed, when a file is removed.
///
/// # Errors
///
/// As [`sparsetruncate`].
pub fn page_cost(kernel: &Kernel) -> Result<Span, IobenchError> {
    let outcome = sparsetruncate(MACHINE, kernel.frees, 1)?;
    let figure = outcome.figure(Statistic::Quartile(2).figure()).filter(|us| us.is_finite());
    let us = figure.ok_or_else(|| IobenchError::Simulator("no file was truncated".into()))?;
    Ok(Span((us * 1000.0 / f64::from(PAGES)).round() as u64))
}

/// What removing a file takes.
///
/// # Errors
///
/// As [`sparsetruncate`].
pub fn removal_costs(kernel: &Kernel) -> Result<RemovalCosts, IobenchError> {
    Ok(RemovalCosts { file: COSTS.remove, page: page_cost(kernel)? })
}

/// bonnie on a simulated machine: what each pass does a second.
///
/// # Errors
///
/// As [`sparsetruncate`], and as [`simulated::bonnie`].
pub fn bonnie_rates(
    machine: &io::Machine,
    kernel: &Kernel,
    bonnie: &Bonnie,
) -> Result<Vec<(Pass, f64)>, IobenchError> {
    let (machine, kernel, bonnie) = (*machine, *kernel, *bonnie);
    let removal = removal_costs(&kernel)?;
    let passes = simulated::bonnie(&BonnieCase { machine, kernel, bonnie, removal })?;
    Ok(passes.into_iter().map(|(pass, outcome)| (pass, outcome.per_second())).collect())
}

//! `zonal sim --list`: the names that `zonal sim` takes.
//!
//! ```
//! let mut out = Vec::new();
//! zonal_simulate::list::print(&zonal_simulate::runs::Simulator, &mut out)?;
//! assert!(String::from_utf8_lossy(&out).contains("skylake_2s_112cpu"));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io::{self, Write};

use zonal_cli::table::Table;
use zonal_scenario::preset::Preset;
use zonal_sim::run::Workload;

use crate::runs::Runner;

/// Prints machines, workloads and presets.
///
/// # Errors
///
/// Those of `out`.
pub fn print(runner: &impl Runner, out: &mut dyn Write) -> io::Result<()> {
    let mut machines = Table::new(1);
    machines.text("machine");
    machines.number("CPUs", "");
    machines.number("memory", "GiB");
    machines.text("what it is");
    for name in runner.names() {
        if let Some(machine) = runner.machine(&name) {
            let (topology, title) = (&machine.topology, machine.title.clone());
            let (cpus, memory) = (topology.cpus().to_string(), topology.memory_gib.to_string());
            machines.row([name, cpus, memory, title]);
        }
    }
    let mut workloads = Table::new(1);
    workloads.text("workload");
    workloads.text("what its tasks do");
    for workload in Workload::ALL {
        workloads.row([workload.name(), workload.about()]);
    }
    let mut presets = Table::new(1);
    presets.text("preset");
    presets.text("what it is");
    for preset in Preset::ALL {
        presets.row([preset.name(), preset.about()]);
    }
    writeln!(out, "{machines}\n\n{workloads}\n\n{presets}\n")?;
    writeln!(out, "A machine of your own: zonal sim --template > mine.toml, then its file name.")
}

//! A row of the tables: sequential reads by a number of threads under a kernel, on a machine.
//!
//! `cargo run --release -p zonal-iobench --example one_row -- desktop_2xRAM_ext3 3.16-rc1 4`

use zonal_iobench::error::IobenchError;
use zonal_iobench::kernel::{BASE, Kernel};
use zonal_iobench::machine::{MACHINES, Machine};
use zonal_iobench::program::{Phase, RANDOM, Tiobench};
use zonal_iobench::simulated::{Case, Outcome, simulate};

fn row(machine: Machine, kernel: &str, threads: u32) -> Result<Outcome, IobenchError> {
    let kernel = Kernel::named(kernel).unwrap_or_else(|| Kernel::named(BASE).expect("there"));
    let tiobench = Tiobench { threads, pages: 2 * machine.frames, random: RANDOM, seed: 1 };
    simulate(&Case { machine, kernel, tiobench })
}

fn main() -> Result<(), IobenchError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let machine = args.first().and_then(|name| Machine::named(name)).unwrap_or(MACHINES[0]);
    let kernel = args.get(1).map_or(BASE, String::as_str);
    let threads = args.get(2).and_then(|text| text.parse().ok()).unwrap_or(1);
    let outcome = row(machine, kernel, threads)?;
    println!("{} {kernel} {threads}", machine.name);
    for phase in Phase::ALL {
        let part = outcome.phases[phase as usize];
        let hits = part.hits as f64 * 100.0 / part.blocks as f64;
        println!("{:>9}: {:8.2} MiB/s, {hits:.1} % cached", phase.name(), outcome.mib_s(phase));
    }
    println!(
        "DMA32: {:.1} % of allocations, {:.1} % of what reclaim looked at; kswapd {:?}, direct {}",
        outcome.dma32_share(),
        outcome.dma32_scanned_share(),
        outcome.kswapd,
        outcome.direct,
    );
    Ok(())
}

#[test]
fn first_fit_keeps_some_of_the_file() {
    let machine = Machine { frames: MACHINES[0].frames / 64, ..MACHINES[0] };
    let outcome = row(machine, "3.0", 1).expect("it runs");
    assert!(outcome.mib_s(Phase::SeqRead) > 50.0);
}

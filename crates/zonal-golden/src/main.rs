//! The fast paths of zonal in a form whose instructions callgrind can count.
//!
//! `zonal-golden list` prints a line a case: name, iterations worth counting, blocks an
//! iteration allocates and frees. `zonal-golden CASE ITERATIONS` runs one. Counting twice, with
//! n and 2n iterations, and taking the difference leaves out everything but n iterations of the
//! case, in its settled state. `cargo xtask golden` does that and compares with `golden.toml`.
//!
//! `zonal-golden lines` prints how many cache lines an allocation touches, for the cases of
//! [`walk`].
//!
//! `zonal-golden stacks` prints through which functions a miss and a direct free reach the core's
//! memory.
//!
//! A case is `PRESET/PATH/WORKLOAD`, or one of [`walk`]. The presets are `Zonal`, `Linux416` and, for
//! `bulk`, `Linux413`; the paths are `owned` (through a CPU handle) and `shared` (through the
//! try-lock); the workloads are:
//!
//! - `hot-pair`: one frame, allocated and freed;
//! - `bulk`: 256 frames with one call, freed with one call;
//! - `burst`: 4096 frames one by one, freed in order, so that batches move to the zone and back;
//! - `random`: the same, freed far from each other;
//! - `mixed`: blocks of orders 0 to 4, of which 256 are alive;
//! - `order9`, `order3`: one huge page, or eight frames, allocated and freed;
//! - `order3-queue`, `order6-queue`: 100 are alive, and the oldest is freed for each that is allocated;
//! - `order3-random`, `orders-random`: 1,000 are alive, of order 3, or of orders 1 to 3; any of them is freed before the next is
//!   allocated.
//!
//! `Zonal/owned/hot-pair+usdt-off`, `+ring-off` and `+asked-ring-off` have trace policies compiled in, and no
//! tool listens; the last is a ring whose sink says nothing of how to ask whether an event is on. `Zonal/owned/hot-pair+planted` is the first with some needless work added: a check
//! of the counts that does not reject it checks nothing.

mod host;
mod lines;
mod stacks;
mod walk;
mod work;

use std::error::Error;
use std::process::ExitCode;
use work::{CASES, Case};
use zonal::preset::Linux416;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["list"] => {
            list();
            Ok(())
        }
        ["lines"] => lines(),
        ["stacks"] => stacks::run::<Linux416>(),
        [name, iterations] => run(name, iterations),
        _ => Err("usage: zonal-golden list | lines | stacks | CASE ITERATIONS".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zonal-golden: {error}");
            ExitCode::FAILURE
        }
    }
}

fn list() {
    for case in cases() {
        println!("{} {} {}", case.name, case.iterations, case.blocks);
    }
}

/// Every case.
fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(walk::CASES)
}

/// For each case of a walk, the lines that an allocation touches.
fn lines() -> Result<(), Box<dyn Error>> {
    for case in walk::LINES {
        println!("{} {:.2}", case.name, (case.of)()?);
    }
    Ok(())
}

fn run(name: &str, iterations: &str) -> Result<(), Box<dyn Error>> {
    let case = cases().find(|case| case.name == name);
    let case = case.ok_or_else(|| format!("there is no case `{name}`: see `zonal-golden list`"))?;
    let iterations =
        iterations.parse().map_err(|error| format!("iterations `{iterations}`: {error}"))?;
    (case.run)(iterations)
}

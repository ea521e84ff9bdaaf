//! bonnie on a simulated machine: one process that makes, reads and deletes files which together have
//! twice the memory.
//!
//! Files lie on the disk in the order in which they were made, one behind the other. What making, opening
//! and deleting a file takes besides its pages is time of a CPU: directories, inodes and the log are not
//! read or written.

use std::collections::HashMap;

use crate::error::IobenchError;
use crate::kernel::Kernel;
use crate::machine::{COSTS, Machine};
use crate::many_files::{Act, Bonnie, Pass};
use crate::program::Blocks;

use super::PhaseOutcome;
use super::engine::{Engine, Work};
use super::reader::Reader;
use super::remover::{RemovalCosts, Remover};
use super::writer::Writer;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct BonnieCase {
    /// On which machine.
    pub machine: Machine,
    /// Under which kernel.
    pub kernel: Kernel,
    /// What runs.
    pub bonnie: Bonnie,
    /// What removing a file takes.
    pub removal: RemovalCosts,
}

/// Files of a pass, and how long it took; of what is read and removed, the pages that were cached.
pub type PassOutcome = (Pass, PhaseOutcome);

/// Runs all passes from a machine whose page cache is empty.
///
/// # Errors
///
/// [`IobenchError`], if files do not fit on the disk, or in the model's table of pages.
pub fn bonnie(case: &BonnieCase) -> Result<Vec<PassOutcome>, IobenchError> {
    let BonnieCase { machine, kernel, bonnie, removal } = case;
    let pages = bonnie.pages.max(1);
    let all = pages.saturating_mul(u64::from(bonnie.files.max(1)));
    let mut engine = Engine::new(machine, kernel, 1, all)?;
    // Where each file lies, by its name.
    let mut places: HashMap<u32, u32> = HashMap::new();
    let mut passes = Vec::new();
    for pass in Pass::ALL {
        let names = bonnie.files_of(pass);
        let work = match pass.act {
            Act::Create => {
                places = names.zip(0..).collect();
                let blocks = Blocks::in_order(pages * u64::from(bonnie.files));
                Work::Write(Writer::of(blocks).in_files(pages, COSTS.create))
            }
            Act::Read => {
                let places = names.map(|name| places[&name]).collect();
                Work::Read(Reader::files(places, pages, COSTS.open))
            }
            Act::Delete => {
                let places = names.map(|name| places[&name]).collect();
                Work::Remove(Remover::of(places, pages, *removal))
            }
        };
        passes.push((pass, engine.timed(work, bonnie.files.into())?));
    }
    Ok(passes)
}

impl Engine {
    /// Has the one thread do something, and says how long it took.
    fn timed(&mut self, work: Work, blocks: u64) -> Result<PhaseOutcome, IobenchError> {
        self.begin(0, work, zonal_cfq::units::Span::ZERO);
        self.run_to_rest(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KERNELS;
    use crate::machine::MACHINES;
    use crate::many_files::Order;
    use zonal_cfq::units::Span;

    fn passes(removal: RemovalCosts) -> Vec<PassOutcome> {
        let machine = Machine { frames: 1 << 13, ..MACHINES[0] };
        let bonnie = Bonnie { files: 160, pages: 2 * (1 << 13) / 160, seed: 3 };
        bonnie_of(machine, bonnie, removal)
    }

    fn bonnie_of(machine: Machine, work: Bonnie, removal: RemovalCosts) -> Vec<PassOutcome> {
        let kernel = KERNELS[1];
        bonnie(&BonnieCase { machine, kernel, bonnie: work, removal }).expect("it runs")
    }

    #[test]
    fn what_is_removed_takes_as_long_as_its_cached_pages() {
        let costs = |file, page| RemovalCosts { file: Span(file), page: Span(page) };
        let removed = |costs| {
            let passes = passes(costs);
            let (pass, outcome) = passes[2];
            assert_eq!((pass.order, pass.act), (Order::Seq, Act::Delete));
            outcome
        };
        let outcome = removed(costs(1000, 10));
        assert!(outcome.hits > 0 && outcome.hits < 160 * 102, "a part is cached: {outcome:?}");
        assert_eq!(outcome.elapsed.0, 160 * 1000 + outcome.hits * 10, "and nothing is waited for");
        assert_eq!(removed(costs(0, 0)).elapsed, Span::ZERO);
    }

    #[test]
    fn files_in_any_order_are_read_more_slowly_and_all_of_them() {
        let passes = passes(RemovalCosts { file: Span(1), page: Span(1) });
        let took = |at: usize| passes[at].1.elapsed;
        assert!(took(4) > took(1) && took(1) > Span::from_millis(10), "{passes:?}");
        assert!(passes.iter().all(|(_, outcome)| outcome.blocks == 160));
    }

    #[test]
    fn after_removing_all_memory_is_free_again() {
        let machine = Machine { frames: 1 << 13, ..MACHINES[0] };
        let work = Bonnie { files: 10, pages: 40, seed: 1 };
        let mut engine = Engine::new(&machine, &KERNELS[1], 1, 400).expect("it fits");
        let free = |engine: &Engine| -> u64 { engine.memory.zones.iter().map(|it| it.free).sum() };
        let before = free(&engine);
        engine.timed(Work::Write(Writer::of(Blocks::in_order(400))), 10).expect("it runs");
        assert_eq!((free(&engine), engine.threads[0].dirty), (before - 400, 400));
        let costs = RemovalCosts { file: Span(1), page: Span(1) };
        let all = Remover::of((0..work.files).collect(), work.pages, costs);
        engine.timed(Work::Remove(all), 10).expect("it runs");
        assert_eq!((free(&engine), engine.threads[0].dirty), (before, 0));
        assert_eq!(engine.memory.dirty(), (0, 0), "what was not written never will be");
    }
}

//! dbench's clients on a simulated machine: each writes, flushes, reads and removes a file, over and over.

use core::time::Duration;

use zonal_cfq::units::{Span, Time};

use crate::error::IobenchError;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::many_files::{Clients, Dbench, Step};
use crate::program::Blocks;

use super::engine::{Engine, Work};
use super::reader::Reader;
use super::remover::{RemovalCosts, Remover};
use super::writer::Writer;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct DbenchCase {
    /// On which machine.
    pub machine: Machine,
    /// Under which kernel.
    pub kernel: Kernel,
    /// What runs.
    pub dbench: Dbench,
    /// What removing a file takes.
    pub removal: RemovalCosts,
}

/// Where a client is.
#[derive(Clone, Copy)]
struct Client {
    /// The step of [`Step::ROUND`] that is next.
    next: usize,
    began: Time,
    rounds: u64,
    longest: Span,
    is_done: bool,
}

/// Runs clients for a time: each ends with the round that it is in then.
///
/// # Errors
///
/// [`IobenchError`], if files do not fit on the disk, or in the model's table of pages.
pub fn dbench(case: &DbenchCase) -> Result<Clients, IobenchError> {
    let DbenchCase { machine, kernel, dbench, removal } = case;
    let pages = dbench.bytes.div_ceil(4096).max(1);
    let mut engine = Engine::new(machine, kernel, dbench.clients.max(1), pages)?;
    let end = Time::ZERO + Span(u64::try_from(dbench.duration.as_nanos()).unwrap_or(u64::MAX));
    let new = Client { next: 0, began: Time::ZERO, rounds: 0, longest: Span::ZERO, is_done: false };
    let mut clients = vec![new; dbench.clients.max(1) as usize];
    loop {
        for (index, client) in clients.iter_mut().enumerate() {
            if !client.is_done && engine.rests(index) {
                client.go_on(&mut engine, index, pages, *removal, end);
            }
        }
        if clients.iter().all(|client| client.is_done) {
            break;
        }
        engine.turn()?;
    }
    let rounds = clients.iter().map(|client| client.rounds).sum();
    let longest = clients.iter().map(|client| client.longest.0).max().unwrap_or(0);
    let took = Duration::from_nanos(engine.now.since(Time::ZERO).0);
    Ok(Clients::of(dbench, rounds, Duration::from_nanos(longest), took))
}

impl Client {
    /// Begins the next step, or is done.
    fn go_on(
        &mut self,
        engine: &mut Engine,
        index: usize,
        pages: u64,
        removal: RemovalCosts,
        end: Time,
    ) {
        if self.next == Step::ROUND.len() {
            self.rounds += 1;
            self.longest = self.longest.max(engine.now.since(self.began));
            (self.next, self.began) = (0, engine.now);
        }
        if self.next == 0 && engine.now >= end {
            self.is_done = true;
            return;
        }
        let work = match Step::ROUND[self.next] {
            Step::Write => Work::Write(Writer::of(Blocks::in_order(pages))),
            Step::Flush => Work::Write(Writer::of(Blocks::in_order(0)).then_flush()),
            Step::Read => Work::Read(Reader::whole(pages)),
            Step::Remove => Work::Remove(Remover::of(vec![0], pages, removal)),
        };
        self.next += 1;
        // Clients do not begin at the same moment.
        let first = self.rounds == 0 && self.next == 1;
        let after = Span::from_micros(if first { 50 * index as u64 } else { 0 });
        engine.begin(index, work, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KERNELS;
    use crate::machine::MACHINES;

    fn clients(count: u32, target_ms: u64) -> Clients {
        let machine = Machine { frames: 1 << 16, ..MACHINES[0] };
        let kernel = Kernel { target_ms, ..KERNELS[1] };
        let dbench = Dbench::of(count, Duration::from_secs(5));
        let removal = RemovalCosts { file: Span(20_000), page: Span(100) };
        super::dbench(&DbenchCase { machine, kernel, dbench, removal }).expect("it runs")
    }

    #[test]
    fn each_round_is_flushed_to_the_disk() {
        let one = clients(1, 300);
        // A seek to the log and back, and what a revolution takes.
        assert!((5..200).contains(&(one.rounds / 5)), "{one:?}");
        let many = clients(8, 300);
        assert!(many.longest > one.longest, "they wait for each other: {many:?} {one:?}");
        let in_all = one.rounds as f64 * 2.0 / one.mib_s;
        assert!((5.0..5.0 + one.longest.as_secs_f64()).contains(&in_all), "{in_all} s");
        assert_eq!(clients(8, 300), many, "the same again");
    }
}

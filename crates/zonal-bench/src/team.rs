//! Threads for one run, each on its CPU, of which either all [begin](zonal_cli::together) or none.
//!
//! ```
//! use zonal_bench::{machine, team};
//! let done = team::run(vec![1, 2], &machine::cpus()?, |index, part| index + part)?;
//! assert_eq!(done, [1, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::thread::Builder;

use zonal_cli::together::together;

use crate::machine;

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum TeamError {
    /// A thread cannot be started: none began.
    #[error("cannot start a thread: {0}")]
    Start(io::Error),
    /// A thread panicked.
    #[error("a thread panicked")]
    Panicked,
}

/// Runs `work` on a thread for each of `parts`, with its index; the threads take turns in having one of `cpus` each.
/// What they return, in order.
///
/// # Errors
///
/// [`TeamError`].
pub fn run<P: Send, R: Send>(
    parts: Vec<P>,
    cpus: &[usize],
    work: impl Fn(usize, P) -> R + Sync,
) -> Result<Vec<R>, TeamError> {
    run_on(|_| Builder::new(), parts, cpus, work)
}

/// The same on threads of `builder`, which is given their indexes.
fn run_on<P: Send, R: Send>(
    builder: impl Fn(usize) -> Builder,
    parts: Vec<P>,
    cpus: &[usize],
    work: impl Fn(usize, P) -> R + Sync,
) -> Result<Vec<R>, TeamError> {
    let parts = parts.into_iter().enumerate().map(|(index, part)| (builder(index), part));
    let done = together(parts, |index, part| {
        // Where the CPU cannot be had, the scheduler's choice will do.
        let _ = cpus.get(index % cpus.len().max(1)).copied().map(machine::pin);
        work(index, part)
    });
    let done = done.map_err(TeamError::Start)?.into_iter().map(Result::ok);
    done.collect::<Option<_>>().ok_or(TeamError::Panicked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn each_has_its_part_and_its_cpu() {
        let cpus = machine::cpus().expect("affinity");
        let meet = Barrier::new(3);
        let done = run(vec!['a', 'b', 'c'], &cpus, |index, part| {
            meet.wait();
            (index, part, machine::cpus().expect("affinity"))
        });
        for (index, (said, part, on)) in done.expect("they run").into_iter().enumerate() {
            assert_eq!((said, part), (index, ['a', 'b', 'c'][index]));
            assert_eq!(on, [cpus[index % cpus.len()]]);
        }
    }

    /// No address space has room for such a stack.
    #[test]
    fn none_begins_where_one_cannot_be_started() {
        let meet = Barrier::new(3);
        let builder = |index| Builder::new().stack_size([1 << 20, 1 << 60][index / 2]);
        let done = run_on(builder, vec![(); 3], &[], |_, ()| meet.wait());
        assert!(matches!(done, Err(TeamError::Start(_))), "{done:?}");
    }

    #[test]
    fn a_panic_is_told() {
        let done = run(vec![false, true], &[], |_, bad| assert!(!bad, "planted"));
        assert!(matches!(done, Err(TeamError::Panicked)), "{done:?}");
    }
}

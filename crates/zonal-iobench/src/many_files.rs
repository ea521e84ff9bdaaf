//! bonnie, and what dbench's clients do with data: which file, which step, in which order. Real files and
//! the simulated machine are both driven by this.
//!
//! Source: bonnie++'s test of files and dbench as mmtests configures them. bonnie makes, reads and deletes
//! files, once in the order of their names and once in any; together they have twice the memory of the
//! machine, so that what is read is hardly ever cached, and what is deleted in part. dbench's own load
//! has names and attributes besides, which are left out: what the discussion is about is how long clients
//! wait for each other's data.
//!
//! ```
//! use zonal_iobench::many_files::{Act, Bonnie, Order, Pass};
//!
//! let bonnie = Bonnie { files: 100, pages: 8, seed: 1 };
//! assert!(bonnie.files_of(Pass { order: Order::Seq, act: Act::Read }).eq(0..100));
//! let mut any = bonnie.files_of(Pass { order: Order::Rand, act: Act::Read }).collect::<Vec<_>>();
//! assert_ne!(any, (0..100).collect::<Vec<_>>());
//! any.sort_unstable();
//! assert_eq!(any, (0..100).collect::<Vec<_>>(), "each of them once");
//! ```

use core::time::Duration;

/// Files of bonnie in mmtests' configuration.
pub const BONNIE_FILES: u32 = 20_480;

/// In which order files are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In that of their names.
    Seq,
    /// In any.
    Rand,
}

/// What is done with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// They are made and written.
    Create,
    /// They are looked up and read.
    Read,
    /// They are deleted.
    Delete,
}

/// A part of bonnie that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// In which order.
    pub order: Order,
    /// What.
    pub act: Act,
}

impl Pass {
    /// All of them, as they follow each other.
    pub const ALL: [Self; 6] = {
        const fn pass(order: Order, act: Act) -> Pass {
            Pass { order, act }
        }
        [
            pass(Order::Seq, Act::Create),
            pass(Order::Seq, Act::Read),
            pass(Order::Seq, Act::Delete),
            pass(Order::Rand, Act::Create),
            pass(Order::Rand, Act::Read),
            pass(Order::Rand, Act::Delete),
        ]
    };

    /// Its name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match (self.order, self.act) {
            (Order::Seq, Act::Create) => "SeqCreate_ops",
            (Order::Seq, Act::Read) => "SeqCreate_read",
            (Order::Seq, Act::Delete) => "SeqCreate_del",
            (Order::Rand, Act::Create) => "RandCreate_ops",
            (Order::Rand, Act::Read) => "RandCreate_read",
            (Order::Rand, Act::Delete) => "RandCreate_del",
        }
    }
}

/// A run of bonnie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bonnie {
    /// Files.
    pub files: u32,
    /// Pages of each; none if they are empty.
    pub pages: u64,
    /// Seed of the order that is none.
    pub seed: u64,
}

impl Bonnie {
    /// A number of files which together have twice as much as this memory.
    #[must_use]
    pub fn twice(frames: u64, files: u32, seed: u64) -> Self {
        let files = files.max(1);
        Self { files, pages: (frames * 2 / u64::from(files)).max(1), seed }
    }

    /// The numbers of the files, which are their names, in the order in which a pass uses them.
    #[must_use]
    pub fn files_of(&self, pass: Pass) -> impl ExactSizeIterator<Item = u32> + use<> {
        let mut files: Vec<u32> = (0..self.files).collect();
        if pass.order == Order::Rand {
            let seed = self.seed.wrapping_mul(4).wrapping_add(pass.act as u64);
            fastrand::Rng::with_seed(seed).shuffle(&mut files);
        }
        files.into_iter()
    }
}

/// What a client of dbench does with its file, in this order, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The file is made and written in pieces.
    Write,
    /// What was written is flushed.
    Flush,
    /// It is read in pieces.
    Read,
    /// It is removed.
    Remove,
}

impl Step {
    /// A round.
    pub const ROUND: [Self; 4] = [Self::Write, Self::Flush, Self::Read, Self::Remove];
}

/// A run of dbench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dbench {
    /// Clients.
    pub clients: u32,
    /// Bytes of a client's file.
    pub bytes: u64,
    /// Bytes that it writes and reads at once.
    pub piece: u64,
    /// For how long.
    pub duration: Duration,
}

impl Dbench {
    /// A number of clients with files of 1 MiB, in pieces of 64 KiB.
    #[must_use]
    pub const fn of(clients: u32, duration: Duration) -> Self {
        Self { clients, bytes: 1 << 20, piece: 64 << 10, duration }
    }

    /// Pieces of a file.
    #[must_use]
    pub const fn pieces(&self) -> u64 {
        self.bytes.div_ceil(self.piece)
    }
}

/// What dbench's clients came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clients {
    /// Clients.
    pub clients: u32,
    /// Data written and read by all together, MiB/s.
    pub mib_s: f64,
    /// Rounds of all.
    pub rounds: u64,
    /// The longest round.
    pub longest: Duration,
}

impl Clients {
    /// What a number of rounds in a time comes to.
    #[must_use]
    pub fn of(dbench: &Dbench, rounds: u64, longest: Duration, took: Duration) -> Self {
        let bytes = rounds as f64 * 2.0 * dbench.bytes as f64;
        let mib_s = bytes / f64::from(1 << 20) / took.as_secs_f64().max(1e-9);
        Self { clients: dbench.clients, mib_s, rounds, longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pass_uses_each_file_once() {
        let bonnie = Bonnie { files: 500, pages: 1, seed: 9 };
        let mut orders = Vec::new();
        for pass in Pass::ALL {
            let order: Vec<u32> = bonnie.files_of(pass).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..500), "{}", pass.name());
            assert_eq!(order.is_sorted(), pass.order == Order::Seq, "{}", pass.name());
            orders.push(order);
        }
        assert_ne!(orders[3], orders[4], "what is read is not in the order in which it was made");
        assert_ne!(orders[4], orders[5]);
    }

    #[test]
    fn rates_count_what_is_written_and_what_is_read() {
        let dbench = Dbench::of(2, Duration::from_secs(1));
        let all = Clients::of(&dbench, 10, Duration::from_millis(7), Duration::from_secs(2));
        assert_eq!((all.clients, all.mib_s, all.rounds), (2, 10.0, 10));
        assert_eq!(dbench.pieces(), 16);
    }
}

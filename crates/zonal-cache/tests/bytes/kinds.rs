//! What the file is on.

use super::faults::Liar;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use zonal_cache::store::Store;
use zonal_cache::{FileStore, MemoryStore, Ring};
use zonal_host::Arena;

/// How long counts may be in motion after a command.
const LONG: Duration = Duration::from_secs(20);

/// What the file is on, and who reads ahead. Each command is over before the next, and what it says does not depend on how
/// far reading ahead has come: so the model holds with a ring and with threads too, but a run is not the same each time.
///
/// The simulated disk is none of them: it needs the simulator's virtual CPUs, whose frames and files have no bytes but in
/// the tests that hold a model against them there, with every policy: `zonal-sim`, `src/cache/bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Memory,
    /// Memory; threads of the host read ahead.
    Threads,
    /// A file past the kernel's cache, where the file system lets it.
    File,
    /// One through it.
    Buffered,
    /// As `File`, and a ring reads ahead, where the system has one.
    Ring,
    /// As `Ring`, but that it is the cache's own, and knows its memory beforehand (registered buffers), where it may.
    Registered,
}

/// What a store does wrong, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lie {
    No,
    Write,
    /// Says that the last of several writes was made.
    Together,
    Read,
    /// Says that what is to be read later was.
    Later,
    Flush,
}

/// The one that all runs share.
pub(crate) fn ring() -> Option<Arc<Ring>> {
    static RING: OnceLock<Option<Arc<Ring>>> = OnceLock::new();
    let new = || {
        let said = |error: &_| eprintln!("run without a ring: no io_uring: {error}");
        Ring::new(4).inspect_err(said).ok()
    };
    RING.get_or_init(new).clone()
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Memory, Self::Threads, Self::File, Self::Buffered, Self::Ring, Self::Registered];

    /// The ring that it is on, if any.
    pub(super) fn ring(self, arena: &Arc<Arena>) -> Option<Arc<Ring>> {
        match self {
            // Where the system has none it was said already.
            Self::Registered => ring().and_then(|_| Ring::with_buffers(4, arena).ok()),
            Self::Ring => ring(),
            _ => None,
        }
    }

    /// A store with these bytes, if it is one with a durable half.
    pub(super) fn memory(self, bytes: Vec<u8>, lie: Lie) -> Option<Arc<Liar<MemoryStore>>> {
        let is_memory = matches!(self, Self::Memory | Self::Threads);
        is_memory.then(|| Arc::new(Liar(MemoryStore::from(bytes), lie)))
    }

    /// One on a new file.
    pub(super) fn file(self, path: &Path, lie: Lie, ring: Option<Arc<Ring>>) -> Box<dyn Store> {
        let store = FileStore::create(path).expect("a file").with_ring(ring);
        let store = if self == Self::Buffered { store.buffered() } else { store };
        Box::new(Liar(store, lie))
    }

    pub(super) const fn io_threads(self) -> usize {
        if matches!(self, Self::Threads) { 2 } else { 0 }
    }

    /// What `check` says of counts, once they are at rest: other threads may end reads between two commands.
    pub(super) fn at_rest(self, check: impl Fn() -> Result<(), String>) -> Result<(), String> {
        let moves = matches!(self, Self::Threads | Self::Ring | Self::Registered);
        let start = Instant::now();
        loop {
            let said = check();
            if said.is_ok() || !moves || start.elapsed() > LONG {
                return said;
            }
            std::thread::yield_now();
        }
    }
}

//! `Zonal`, an allocator for each thread: what the machine lets its threads do at once.
//!
//! Threads that share nothing slow each other down where a machine's CPUs share execution units, caches or the bandwidth
//! of memory. A row of two threads on one allocator divided by this one's is what is lost by sharing the allocator; divided by
//! one thread's it is that and the machine.
//!
//! ```
//! use zonal_bench::program::{Every, Programs};
//! use zonal_bench::subject::{FrameThread, Setup, Subject};
//! use zonal_bench::subjects::private::{Alone, Private};
//! use zonal_bench::workload::Workload;
//!
//! type Workloads = Alone<Every>;
//! assert!(Workloads::has(Workload::Mixed) && !Workloads::has(Workload::ProducerConsumer));
//! let two = Private::open(&Setup { memory: 64 << 20, threads: 2, touch: false, regions: None })?;
//! let (mut one, mut other) = (two.thread(0)?, two.thread(1)?);
//! assert!(one.alloc(3).is_some() && other.alloc(3).is_some());
//! # Ok::<(), zonal_bench::subject::SubjectError>(())
//! ```

use std::marker::PhantomData;

use zonal::Pfn;
use zonal::preset::Zonal;

use super::zonal::{Owned, OwnedThread, Preset};
use crate::case::ThreadRun;
use crate::figures::Figures;
use crate::loops::Halt;
use crate::program::{Part, Programs};
use crate::subject::{FrameThread, Group, Path, Profile, Setup, Subject, SubjectError};
use crate::workload::Workload;

/// The workloads of `P` in which a thread needs no frame of another, and which do not fill memory.
#[derive(Clone, Copy, Debug)]
pub struct Alone<P>(PhantomData<fn() -> P>);

impl<P: Programs> Programs for Alone<P> {
    fn has(workload: Workload) -> bool {
        P::has(workload)
            && !workload.fills()
            && !matches!(workload, Workload::ProducerConsumer | Workload::ParallelFree)
    }

    fn run<T: FrameThread>(
        part: Part<'_, T::Block>,
        handle: T,
    ) -> Result<(ThreadRun, Figures), Halt> {
        P::run(part, handle)
    }
}

/// As many arenas as threads, each with its part of the memory.
#[derive(Debug)]
pub struct Private {
    arenas: Vec<Preset<Zonal, Owned>>,
}

impl Subject for Private {
    const PROFILE: Profile = Profile {
        name: "zonal-private",
        path: Path::Owned,
        group: Group::Reference,
        note: "an allocator of its own for each thread",
        max_order: Preset::<Zonal, Owned>::PROFILE.max_order,
        managed: true,
        bulk: true,
    };
    type Block = Pfn;
    type Thread<'a> = OwnedThread<'a, Zonal>;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        let threads = setup.threads.max(1);
        let each = Setup { memory: setup.memory / threads, threads: 1, ..*setup };
        let arenas = (0..threads).map(|_| Preset::open(&each));
        Ok(Self { arenas: arenas.collect::<Result<_, _>>()? })
    }

    fn thread(&self, index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        self.arenas[index].thread(0)
    }

    fn frames(&self) -> Option<usize> {
        self.arenas.iter().map(Subject::frames).sum()
    }
}

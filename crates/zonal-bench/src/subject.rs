//! What is measured: the traits an allocator implements to take part.
//!
//! A [`Subject`] is one allocator in one configuration. Its threads reach it through a
//! [`FrameThread`] each, and every measured loop is generic over that type, so an allocator whose
//! fast path can be inlined is measured inlined and nothing is called through a pointer inside a
//! loop. Only whole samples are type-erased (see [`crate::case`]).
//!
//! ```
//! use zonal_bench::subject::{FrameThread, Setup, Subject};
//! use zonal_bench::subjects::baseline::FreeList;
//!
//! let setup = Setup { memory: 64 << 20, threads: 1, touch: false, regions: None };
//! let list = FreeList::open(&setup)?;
//! let mut thread = list.thread(0)?;
//! let frame = thread.alloc(0).expect("16384 frames are free");
//! // SAFETY: `frame` came from this subject with order 0 just above and is freed once.
//! unsafe { thread.free(frame, 0) };
//! # Ok::<(), zonal_bench::subject::SubjectError>(())
//! ```

use core::fmt;
use core::num::NonZeroU32;

use zonal::{FreeCounts, MigrateType};

use crate::child::ChildError;
use crate::figures::LockWork;

/// Bytes in a frame.
pub const FRAME_BYTES: usize = 4096;

/// How the threads of a subject reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// Through a handle a thread owns exclusively.
    Owned,
    /// Through a reference any thread may use at any time.
    Shared,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owned => "owned",
            Self::Shared => "shared",
        })
    }
}

/// Which family a subject belongs to; `--preset` and `--subjects all` choose by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// A preset of zonal.
    Zonal,
    /// An allocator of another project.
    Peer,
    /// Not an allocator anyone would use: a floor or a ceiling to read the others against. Not
    /// part of `all`.
    Reference,
}

/// What is known of a subject before it is opened.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Name on the command line and in every output.
    pub name: &'static str,
    /// How threads reach it.
    pub path: Path,
    /// The family it belongs to.
    pub group: Group,
    /// How it is made safe for several threads, and what else a reader of its row must know.
    pub note: &'static str,
    /// Largest order it can allocate.
    pub max_order: u8,
    /// Whether it manages a fixed set of frames, so that "90 % full" means something.
    pub managed: bool,
    /// Whether it has a bulk interface of its own; otherwise bulk is a loop.
    pub bulk: bool,
}

/// The run a subject is opened for.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes of frames to manage.
    pub memory: usize,
    /// Threads that will use the subject, each with its own index below this.
    pub threads: usize,
    /// Whether the frames will be written to and must therefore be real memory.
    pub touch: bool,
    /// Regions of a zone, of presets that look for frames by them; each decides if not given.
    pub regions: Option<NonZeroU32>,
}

impl Setup {
    /// Frames to manage.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.memory / FRAME_BYTES
    }
}

/// Why a subject cannot take part.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    /// The address space for its memory could not be reserved.
    #[error("cannot reserve {bytes} bytes of address space: {source}")]
    Reserve {
        /// Bytes asked for.
        bytes: usize,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// It cannot manage that many frames.
    #[error("manages at most {most} frames, and {asked} were asked for")]
    TooLarge {
        /// Frames asked for.
        asked: usize,
        /// The most it can manage.
        most: usize,
    },
    /// It failed to initialise; the text is its own.
    #[error("failed to initialise: {0}")]
    Init(String),
    /// Its process has no case of it.
    #[error(transparent)]
    Child(#[from] ChildError),
}

/// What an allocator says that it has free.
#[derive(Clone, Copy, Debug)]
pub struct FreeBlocks {
    /// Free blocks by order and migrate type, of all zones.
    pub blocks: FreeCounts,
    /// Frames in caches, which are in none of them.
    pub cached: u64,
}

/// An allocator under measurement.
pub trait Subject: Send + Sync + Sized + 'static {
    /// What is known of it before it is opened.
    const PROFILE: Profile;

    /// What names an allocated block: a pfn, an address, whatever the allocator hands out.
    type Block: Copy + Default + Send + 'static;

    /// What one thread uses it through.
    type Thread<'a>: FrameThread<Block = Self::Block>;

    /// Opens the allocator over `setup.memory` bytes. Called once per workload and thread count.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from managing that memory.
    fn open(setup: &Setup) -> Result<Self, SubjectError>;

    /// The access of thread `index` (below [`Setup::threads`]). Called on that thread, once a
    /// sample, outside the measured time.
    ///
    /// # Errors
    ///
    /// Whatever keeps the thread from registering.
    fn thread(&self, index: usize) -> Result<Self::Thread<'_>, SubjectError>;

    /// Frames that can be handed out when none is, if [`Profile::managed`].
    fn frames(&self) -> Option<usize>;

    /// What it has free, if it says.
    fn free_blocks(&self) -> Option<FreeBlocks> {
        None
    }

    /// What was done under its zone locks since it was opened, if it counts that.
    fn lock_work(&self) -> Option<LockWork> {
        None
    }
}

/// One thread's access to a [`Subject`].
///
/// Implementations mark these methods `#[inline]`.
pub trait FrameThread {
    /// What names an allocated block.
    type Block: Copy + Default + Send + 'static;

    /// Allocates `1 << order` contiguous frames; `None` if it cannot.
    fn alloc(&mut self, order: u8) -> Option<Self::Block>;

    /// Allocates as [`alloc`](Self::alloc) and says what the frames are for; an allocator that
    /// makes no difference ignores it.
    #[inline]
    fn alloc_as(&mut self, order: u8, migrate: MigrateType) -> Option<Self::Block> {
        let _ = migrate;
        self.alloc(order)
    }

    /// Moves allocated pages together so that an order-9 block forms, if the allocator does that
    /// and the subject was opened for it; says whether there is one now. Called when no other
    /// thread uses the subject.
    fn compact(&mut self) -> bool {
        false
    }

    /// The number of a block's first frame, where blocks have such numbers: blocks of an order are at
    /// multiples of its size.
    fn frame(&self, block: Self::Block) -> Option<u64> {
        let _ = block;
        None
    }

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// `block` came from `alloc` (or `alloc_bulk`, with order 0) of the same subject, on any
    /// thread, with the same `order`, and has not been freed since.
    unsafe fn free(&mut self, block: Self::Block, order: u8);

    /// Fills `out` from its start with single frames and says how many it got.
    #[inline]
    fn alloc_bulk(&mut self, out: &mut [Self::Block]) -> usize {
        for (filled, slot) in out.iter_mut().enumerate() {
            match self.alloc(0) {
                Some(block) => *slot = block,
                None => return filled,
            }
        }
        out.len()
    }

    /// Frees single frames.
    ///
    /// # Safety
    ///
    /// As [`free`](Self::free) with order 0, for each of `blocks`; no block is named twice.
    #[inline]
    unsafe fn free_bulk(&mut self, blocks: &[Self::Block]) {
        for block in blocks {
            // SAFETY: the caller promises for each of `blocks` what `free` asks for.
            unsafe { self.free(*block, 0) };
        }
    }

    /// Writes one byte to the first frame of `block`. Only called when the subject was opened
    /// with [`Setup::touch`].
    ///
    /// # Safety
    ///
    /// `block` is allocated, by this subject, and the subject was opened with `touch`.
    unsafe fn touch(&mut self, block: Self::Block);
}

//! What can be measured: a program's registry is a list of [entries](Entry).
//!
//! ```
//! use zonal_bench::{program::Quick, subjects};
//!
//! let entries = subjects::references::<Quick>();
//! assert!(entries.iter().any(|entry| entry.profile.name == "free-list"));
//! ```

use std::sync::Arc;

use crate::aging;
use crate::case::{self, Case, Spec};
use crate::child;
use crate::options::Options;
use crate::program::Programs;
use crate::subject::{Group, Profile, Subject, SubjectError};
use crate::tails;
use crate::workload::Workload;

pub mod baseline;
pub mod bits;
pub mod kernel;
pub mod movable;
pub mod page;
pub mod placed;
pub mod private;
pub mod zonal;

/// What opens a subject for a spec.
type Opener = fn(&Spec) -> Result<Arc<dyn Case>, SubjectError>;
/// What ages a subject.
pub type Ager = fn(&aging::Spec) -> Result<aging::Row, SubjectError>;

/// What times calls of a subject.
pub type Timer = fn(&tails::Spec) -> Result<Vec<tails::Row>, SubjectError>;

/// A subject that can be opened by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What is known of it.
    pub profile: Profile,
    open: Opener,
    has: fn(Workload) -> bool,
    age: Option<Ager>,
    time: Option<Timer>,
    apart: bool,
}

impl Entry {
    /// The entry of a subject type, with the workloads of `P`.
    #[must_use]
    pub fn of<S: Subject, P: Programs>() -> Self {
        Self::with::<P>(S::PROFILE, case::open::<S, P>)
    }

    /// An entry that opens its cases itself, for instance by choosing a type by the memory; the
    /// workloads are those of `P`.
    #[must_use]
    pub fn with<P: Programs>(profile: Profile, open: Opener) -> Self {
        Self { profile, open, has: P::has, age: None, time: None, apart: false }
    }

    /// The same with a type that can be [aged](aging), and whose [tails] can be measured.
    #[must_use]
    pub fn aged<S: Subject>(self) -> Self {
        self.aged_with(aging::run::<S>, tails::run::<S>)
    }

    /// The same by functions of its own, for instance ones that choose a type by the memory.
    #[must_use]
    pub fn aged_with(self, age: Ager, time: Timer) -> Self {
        Self { age: Some(age), time: Some(time), ..self }
    }

    /// Times its calls.
    ///
    /// # Errors
    ///
    /// What the subject says, and that it cannot be timed.
    pub fn time(&self, spec: &tails::Spec) -> Result<Vec<tails::Row>, SubjectError> {
        let Some(time) = self.time else {
            return Err(SubjectError::Init("cannot be timed".into()));
        };
        time(spec)
    }

    /// Whether it can be aged.
    #[must_use]
    pub const fn ages(&self) -> bool {
        self.age.is_some()
    }

    /// Ages it.
    ///
    /// # Errors
    ///
    /// What the subject says, and that it cannot be aged.
    pub fn age(&self, spec: &aging::Spec) -> Result<aging::Row, SubjectError> {
        let Some(age) = self.age else {
            return Err(SubjectError::Init("cannot be aged".into()));
        };
        age(spec)
    }

    /// The same subject, opened in a process of its own: see [`child`].
    #[must_use]
    pub const fn apart(self) -> Self {
        Self { apart: true, ..self }
    }

    /// Whether it is opened in a process of its own.
    #[must_use]
    pub const fn is_apart(&self) -> bool {
        self.apart
    }

    /// Whether `workload` is compiled for it.
    #[must_use]
    pub fn has(&self, workload: Workload) -> bool {
        (self.has)(workload)
    }

    /// Opens it for `spec`.
    ///
    /// # Errors
    ///
    /// What the subject says.
    pub fn open(&self, spec: &Spec) -> Result<Arc<dyn Case>, SubjectError> {
        if self.apart { child::open(&self.profile, spec) } else { (self.open)(spec) }
    }

    /// Why this subject has no part in `workload`, if it has none.
    #[must_use]
    pub fn objection(&self, workload: Workload, touch: bool, options: Options) -> Option<String> {
        let profile = &self.profile;
        if profile.name == kernel::PROFILE.name {
            let fits = workload == Workload::PageFault1 && touch;
            return (!fits).then(|| "takes part in page-fault1 with --touch only".into());
        }
        let compacts = options.compact || workload == Workload::StressHighalloc;
        if compacts && profile.group != Group::Zonal {
            return Some("does not move pages".into());
        }
        // A reference with frames of its own (the free list) does what an allocator does.
        let hollow = profile.group == Group::Reference && !profile.managed;
        if workload == Workload::ProducerConsumer && hollow {
            return Some("does not pass frames from thread to thread".into());
        }
        if touch && hollow && workload.touches() {
            return Some("has no memory to write to".into());
        }
        if workload.max_order() > profile.max_order {
            return Some(format!("has no order-{} blocks", workload.max_order()));
        }
        if workload.fills() && !profile.managed {
            return Some("manages no fixed set of frames that could be 90 % full".into());
        }
        None
    }
}

/// The references, with the workloads of `P`.
#[must_use]
pub fn references<P: Programs>() -> Vec<Entry> {
    vec![
        Entry::of::<baseline::FreeList, P>(),
        Entry::of::<baseline::Null, P>(),
        Entry::of::<baseline::PrivateStack, P>(),
        Entry::of::<bits::Bits<false>, P>(),
        Entry::of::<bits::Bits<true>, P>(),
        Entry::of::<placed::Placed, P>(),
        Entry::with::<P>(kernel::PROFILE, kernel::open),
        Entry::of::<private::Private, private::Alone<P>>(),
    ]
}

/// Names of all subjects that the full bench has, for programs that have some of them only and
/// must tell a name that is not compiled in from one that does not exist.
pub const KNOWN: [(&str, Group); 29] = [
    ("Zonal", Group::Zonal),
    ("Linux416", Group::Zonal),
    ("SkipMerge", Group::Zonal),
    ("Cluster", Group::Zonal),
    ("ClusterFree", Group::Zonal),
    ("Linux413", Group::Zonal),
    ("Linux316", Group::Zonal),
    ("FairZonePosted", Group::Zonal),
    ("FairZone", Group::Zonal),
    ("LessDirty", Group::Zonal),
    ("Linux63", Group::Zonal),
    ("SplitZones", Group::Zonal),
    ("Trusting", Group::Zonal),
    ("buddy-slab-allocator", Group::Peer),
    ("bitmap-allocator", Group::Peer),
    ("frame-alloc", Group::Peer),
    ("buddy_system_allocator", Group::Peer),
    ("talc", Group::Peer),
    ("mimalloc", Group::Peer),
    ("tikv-jemallocator", Group::Peer),
    ("snmalloc-rs", Group::Peer),
    ("free-list", Group::Reference),
    ("null", Group::Reference),
    ("private-stack", Group::Reference),
    ("bits", Group::Reference),
    ("bits-lowest", Group::Reference),
    ("bits-placed", Group::Reference),
    ("kernel-mmap", Group::Reference),
    ("zonal-private", Group::Reference),
];

/// The names whose group `keep` accepts, each once, separated by commas.
#[must_use]
pub fn names(known: &[(&str, Group)], keep: impl Fn(Group) -> bool) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, group) in known {
        if keep(*group) && !names.contains(name) {
            names.push(name);
        }
    }
    if names.is_empty() { "none is built in".into() } else { names.join(", ") }
}

/// Whether an entry is part of `all` for a run that touches (or not): references are not, but for
/// the kernel's page faults beside touched ones.
#[must_use]
pub fn in_all(entry: &Entry, touch: bool) -> bool {
    entry.profile.group != Group::Reference || (touch && entry.profile.name == "kernel-mmap")
}

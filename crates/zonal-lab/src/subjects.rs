//! The registry of what can be measured.
//!
//! ```
//! use zonal_lab::subjects;
//!
//! assert!(subjects::all().iter().any(|entry| entry.profile.name == "free-list"));
//! ```

use std::sync::Arc;

use crate::case::{self, Case, Spec};
use crate::options::Options;
use crate::subject::{Group, Profile, Subject, SubjectError};
use crate::workload::Workload;

pub mod baseline;
pub mod kernel;
#[cfg(feature = "peers")]
pub mod mallocs;
pub mod movable;
#[cfg(feature = "peers")]
pub mod peers;
pub mod zonal;

/// A subject that can be opened by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What is known of it.
    pub profile: Profile,
    open: fn(&Spec) -> Result<Arc<dyn Case>, SubjectError>,
}

impl Entry {
    /// The entry of a subject type.
    #[must_use]
    pub fn of<S: Subject>() -> Self {
        Self { profile: S::PROFILE, open: case::open::<S> }
    }

    /// An entry that opens its cases itself, for instance by choosing a type by the memory.
    #[must_use]
    pub fn with(profile: Profile, open: fn(&Spec) -> Result<Arc<dyn Case>, SubjectError>) -> Self {
        Self { profile, open }
    }

    /// Opens it for `spec`.
    ///
    /// # Errors
    ///
    /// What the subject says.
    pub fn open(&self, spec: &Spec) -> Result<Arc<dyn Case>, SubjectError> {
        (self.open)(spec)
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

/// Every subject built in: zonal's presets, then peers, then references.
#[must_use]
pub fn all() -> Vec<Entry> {
    let mut entries = zonal::entries();
    #[cfg(feature = "peers")]
    {
        entries.extend(peers::entries());
        entries.extend(mallocs::entries());
    }
    entries.push(Entry::of::<baseline::FreeList>());
    entries.push(Entry::of::<baseline::Null>());
    entries.push(Entry::of::<baseline::PrivateStack>());
    entries.push(Entry::with(kernel::PROFILE, kernel::open));
    entries
}

/// The names of the entries that `keep` accepts, each once, separated by commas.
#[must_use]
pub fn names(entries: &[Entry], keep: impl Fn(&Profile) -> bool) -> String {
    let mut names: Vec<&str> = Vec::new();
    for entry in entries.iter().filter(|entry| keep(&entry.profile)) {
        if !names.contains(&entry.profile.name) {
            names.push(entry.profile.name);
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

//! Presets that code with memory at stake may rest on.
//!
//! Every policy trait may be implemented by anyone, which is how experiments and planted bugs come
//! to be; a policy that loses a frame or hands one out twice then breaks its own program's logic.
//! Where frames are memory that safe code reads and writes, that would be unsound. There a preset
//! has to be [`Sound`]: made of policies of this crate alone.
//!
//! ```
//! use zonal::policy::Sound;
//! use zonal::preset::{ClusterFree, Zonal};
//! fn pool<S: Sound>() {}
//! pool::<Zonal>();
//! pool::<ClusterFree>();
//! ```
//!
//! A preset of one's own, from the policies there are, is sound too; one with a policy of one's own
//! is not:
//!
//! ```compile_fail,E0271
//! use zonal::policy::Sound;
//! # use zonal::policy::{bulk_free::Runs, compact::Cheapest, dirty::Unlimited, merge::{Always, Merge}};
//! # use zonal::policy::{Policy, split::Whole, trace::Off, walk::FirstFit};
//! # use zonal::{Order, pcp::Linked, zone::lists::BuddyLists};
//! struct Mine;
//! impl Merge for Mine {
//!     const SKIPS: bool = true;
//!     fn defers(_: Order) -> bool { false } // a lie
//! }
//! struct Preset;
//! impl Policy for Preset {
//!     type Free = BuddyLists<Mine>;
//! #   const NAME: &'static str = "Preset";
//! #   type Pcp = Linked;
//! #   type Compact = Cheapest;
//! #   type Walk = FirstFit;
//! #   type Dirty = Unlimited;
//! #   type BulkFree = Runs;
//! #   type Split = Whole;
//! #   type Trace = Off;
//! }
//! fn pool<S: Sound>() {}
//! pool::<Preset>();
//! ```

use super::bulk_free::{OneByOne, PrepareCommit, Runs};
use super::compact::{Cheapest, InOrder};
use super::dirty::{Cached, Exact, Unlimited};
use super::split::{ByCpu, BySize, Whole};
use super::walk::{Fair, FairFlagged, FairPosted, FirstFit};
use super::{Policy, cluster, merge};
use crate::zone::free_map::Mapped;
use crate::zone::lists::BuddyLists;

/// What only this crate can name.
pub(crate) mod sealed {
    /// Implemented for the policies of this crate.
    pub trait Own {}
}

use sealed::Own;

/// A policy of this crate. Sealed: no other crate can implement it.
pub trait Trusted: Own {}

impl<T: Own> Trusted for T {}

/// A preset all of whose policies are of this crate. What it traces may be anything: a trace sink
/// is told of frames and changes none.
pub trait Sound:
    Policy<
        Free: Trusted,
        Pcp: Trusted,
        Compact: Trusted,
        Walk: Trusted,
        Dirty: Trusted,
        BulkFree: Trusted,
        Split: Trusted,
    >
{
}

impl<S> Sound for S where
    S: Policy<
            Free: Trusted,
            Pcp: Trusted,
            Compact: Trusted,
            Walk: Trusted,
            Dirty: Trusted,
            BulkFree: Trusted,
            Split: Trusted,
        >
{
}

/// The policies of this crate, but for those for per-CPU pages, which say it themselves.
macro_rules! own {
    ($($policy:ty),* $(,)?) => {
        $(impl Own for $policy {})*
    };
}

own!(
    merge::Always,
    merge::Prefetched,
    merge::SkipSingles,
    cluster::None,
    cluster::Cut,
    cluster::CutAndJoin,
    InOrder,
    Cheapest,
    FirstFit,
    Fair,
    FairFlagged,
    FairPosted,
    Unlimited,
    Exact,
    Cached,
    OneByOne,
    PrepareCommit,
    Runs,
    Whole,
    BySize,
    ByCpu,
);

impl<M: Own, C: Own> Own for BuddyLists<M, C> {}

impl Own for Mapped {}

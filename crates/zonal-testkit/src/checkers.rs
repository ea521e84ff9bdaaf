//! The invariants, one function each, over a [`Snapshot`] and the [`Model`].
//!
//! | function | invariant |
//! |---|---|
//! | [`check_one_place`] | I-1: every managed frame is in exactly one place |
//! | [`check_states`] | I-1: the state bytes say which |
//! | [`check_lists`] | I-1: a listed block lies in pageblocks of the list's zone and type |
//! | [`check_counts`] | I-2: free + cached + isolated + allocated = managed, as reported |
//! | [`check_merged`] | I-5: no two free buddies are on the same list |
//! | [`check_holds`] | I-7: lock holds are bounded |
//! | [`check_faults`] | I-7: no callback under a lock, no lock inside one of its kind |
//! | [`check_counters`] | the event counters add up to what is out |
//! | [`check_reserve`] | the high-atomic reserve is as large as it says, and within its bound |
//!
//! I-3 and I-6 are checked where an allocation returns, I-4 where a free does: [`Model`] and
//! [`runner`](crate::runner).
//!
//! ```
//! use zonal::platform::single::SingleThread;
//! use zonal::preset::Linux416;
//! use zonal_testkit::checkers::{Rules, check_all};
//! use zonal_testkit::model::Model;
//! use zonal_testkit::shape::Shape;
//! use zonal_testkit::snapshot::Snapshot;
//! use zonal_testkit::world::with_world;
//! with_world::<SingleThread, Linux416, _>(Shape::Holes, |world| {
//!     let model = Model::new(world.allocator.plan());
//!     let mut snapshot = Snapshot::of(&world.allocator);
//!     check_all(&snapshot, &model, &Rules::STRICT).unwrap();
//!     snapshot.found.pop();
//!     assert!(check_all(&snapshot, &model, &Rules::STRICT).is_err(), "a block is lost");
//! });
//! ```

use crate::model::Model;
use crate::snapshot::{Found, Snapshot};
use std::fmt;
use zonal::frame::FrameState;
use zonal::inspect::Place;
use zonal::map::RangeKind;
use zonal::policy::FreeMemory;
use zonal::policy::Policy;
use zonal::{HOLD_BOUND, MigrateType, Order, Pfn, ZoneId, hold_bound};

/// An invariant that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which: `"I-1"` to `"I-7"`, or the name of what else is checked.
    pub rule: &'static str,
    /// How it is broken.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

impl std::error::Error for Violation {}

/// What a checker found.
pub type Checked = Result<(), Violation>;

fn broken(rule: &'static str, detail: impl Into<String>) -> Checked {
    Err(Violation { rule, detail: detail.into() })
}

/// What a policy is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Orders whose free buddies may stay apart (I-5).
    pub defers: fn(Order) -> bool,
    /// The most work of one lock hold (I-7).
    pub hold: u32,
}

impl Rules {
    /// Every merge is made.
    pub const STRICT: Self = Self { defers: |_| false, hold: HOLD_BOUND };

    /// What the preset says of itself.
    #[must_use]
    pub const fn of<S: Policy>() -> Self {
        Self { defers: S::Free::defers, hold: hold_bound::<S::Free>() }
    }
}

/// All checkers over the snapshot.
///
/// # Errors
/// The first violation.
pub fn check_all(snapshot: &Snapshot, model: &Model<'_>, rules: &Rules) -> Checked {
    check_one_place(snapshot, model)?;
    check_states(snapshot, model)?;
    check_lists(snapshot)?;
    check_counts(snapshot, model)?;
    check_merged(snapshot, rules)?;
    check_holds(snapshot, rules)?;
    check_counters(snapshot, model)?;
    check_reserve(snapshot)
}

/// I-1: each managed frame is allocated, or found in one place, and no other frame is.
///
/// # Errors
/// A frame that is in none, in two, or not managed.
pub fn check_one_place(snapshot: &Snapshot, model: &Model<'_>) -> Checked {
    let found = snapshot.found.iter().map(|at| (at.pfn, at.place.order(), Some(at)));
    let out = model.iter().map(|(pfn, order)| (pfn, order, None));
    let mut seen = vec![false; snapshot.states.len()];
    for (pfn, order, place) in found.chain(out) {
        for pfn in (pfn.get()..pfn.get() + order.frames()).map(Pfn::new) {
            let Some(at) = snapshot.index(pfn) else {
                return broken("I-1", format!("pfn {pfn} of {place:?} is outside the table"));
            };
            if !snapshot.is_managed(at) {
                return broken("I-1", format!("pfn {pfn} of {place:?} is not managed"));
            }
            if std::mem::replace(&mut seen[at], true) {
                let places = who_has(snapshot, model, pfn);
                return broken("I-1", format!("pfn {pfn} is in two places: {places}"));
            }
        }
    }
    match (0..seen.len()).find(|&at| snapshot.is_managed(at) && !seen[at]) {
        Some(at) => {
            let (pfn, state) = (Pfn::new(snapshot.base.get() + at as u64), snapshot.states[at]);
            broken("I-1", format!("pfn {pfn} (state {state:?}) is nowhere: lost"))
        }
        None => Ok(()),
    }
}

/// Every place that `pfn` is in, for messages.
fn who_has(snapshot: &Snapshot, model: &Model<'_>, pfn: Pfn) -> String {
    let has = |at: &&Found| {
        let offset = pfn.get().wrapping_sub(at.pfn.get());
        offset < at.place.order().frames()
    };
    let places: Vec<_> = snapshot.found.iter().filter(has).collect();
    format!("{places:?}, allocated {:?}", model.containing(pfn))
}

/// I-1: the state byte of a block's first frame says what the block is; of frames that are not managed, in
/// pageblocks of zones, that they are withheld; all others say nothing.
///
/// # Errors
/// A frame whose state is not that of its place.
pub fn check_states(snapshot: &Snapshot, model: &Model<'_>) -> Checked {
    let pfn_of = |at: usize| Pfn::new(snapshot.base.get() + at as u64);
    let mut expected = vec![FrameState::INNER; snapshot.states.len()];
    for (at, state) in expected.iter_mut().enumerate() {
        let managed = model.kind_at(pfn_of(at)).is_some_and(RangeKind::is_usable);
        if managed != snapshot.is_managed(at) {
            let pfn = pfn_of(at);
            return broken("I-1", format!("pfn {pfn} should be managed: {managed}, and is not so"));
        }
        if !managed && snapshot.pageblock(at).is_some() {
            *state = FrameState::WITHHELD;
        }
    }
    let found = snapshot.found.iter().map(|at| {
        let state = match at.place {
            Place::Listed { order, .. } => {
                let is = snapshot.index(at.pfn).map(|at| snapshot.states[at]);
                let skipped = is == Some(FrameState::MERGE_SKIPPED) && order == Order::ZERO;
                // Whether it may be is the business of `check_merged`.
                if skipped { FrameState::MERGE_SKIPPED } else { FrameState::free(order) }
            }
            Place::Untouched => FrameState::INNER,
            Place::Cached { order, .. } => FrameState::cached(order),
        };
        (at.pfn, state)
    });
    let out = model.iter().map(|(pfn, order)| (pfn, FrameState::allocated(order)));
    for (pfn, state) in found.chain(out) {
        if let Some(at) = snapshot.index(pfn) {
            expected[at] = state;
        }
    }
    match expected.iter().zip(&snapshot.states).position(|(want, is)| want != is) {
        Some(at) => {
            let pfn = pfn_of(at);
            let (is, want) = (snapshot.states[at], expected[at]);
            broken("I-1", format!("the state of pfn {pfn} is {is:?}, not {want:?}"))
        }
        None => Ok(()),
    }
}

/// I-1: a block is aligned, lies in its zone, and is on the list of its first pageblock's type; the
/// others' types merge with that.
///
/// # Errors
/// A block that is on the wrong list.
pub fn check_lists(snapshot: &Snapshot) -> Checked {
    for block in &snapshot.found {
        let order = block.place.order();
        if !block.pfn.is_aligned(order) {
            return broken("I-1", format!("{block:?} is not aligned"));
        }
        for frame in (0..order.frames()).step_by(snapshot.pageblock_order.frames() as usize) {
            let at = snapshot.index(Pfn::new(block.pfn.get() + frame));
            let pageblock = at.and_then(|at| snapshot.pageblock(at));
            let zone = pageblock.map(|(zone, _)| zone);
            if zone != Some(block.zone) {
                return broken("I-1", format!("{block:?} reaches into zone {zone:?}"));
            }
            if let (Place::Listed { migrate, .. }, Some((_, is))) = (block.place, pageblock)
                && (!migrate.merges_with(is) || (frame == 0 && migrate != is))
            {
                return broken("I-1", format!("{block:?} is in a pageblock of type {is:?}"));
            }
        }
    }
    Ok(())
}

/// Frames of `zone` that are out.
fn allocated_in(snapshot: &Snapshot, model: &Model<'_>, zone: ZoneId) -> u64 {
    let of_zone = |&(pfn, _): &(Pfn, Order)| {
        let pageblock = snapshot.index(pfn).and_then(|at| snapshot.pageblock(at));
        pageblock.is_some_and(|(id, _)| id == zone)
    };
    model.iter().filter(of_zone).map(|(_, order)| order.frames()).sum()
}

/// I-2: what is counted is what was found, and with what is out it is all that is managed.
///
/// # Errors
/// A count that is off.
pub fn check_counts(snapshot: &Snapshot, model: &Model<'_>) -> Checked {
    for info in &snapshot.zones {
        let (mut free, mut cached, mut isolated) = (0, 0, 0);
        let mut blocks = info.blocks.map(|row| row.map(|_| 0_u32));
        for block in snapshot.found.iter().filter(|block| block.zone == info.zone) {
            let frames = block.place.order().frames();
            match block.place {
                Place::Listed { order, migrate } => {
                    blocks[order.index()][migrate.index()] += 1;
                    match migrate {
                        MigrateType::Isolate => isolated += frames,
                        _ => free += frames,
                    }
                }
                Place::Untouched => {
                    let pageblock = snapshot.index(block.pfn).and_then(|at| snapshot.pageblock(at));
                    let migrate = pageblock.map_or(MigrateType::Movable, |(_, migrate)| migrate);
                    blocks[Order::MAX.index()][migrate.index()] += 1;
                    free += frames;
                }
                Place::Cached { .. } => cached += frames,
            }
        }
        let zone = info.zone;
        let counted = (info.free, info.cached, info.isolated);
        if counted != (free, cached, isolated) {
            return broken(
                "I-2",
                format!(
                    "zone {zone} counts (free, cached, isolated) {counted:?}, \
                     found were {free}, {cached}, {isolated}"
                ),
            );
        }
        // What CPUs took may be counted late by 64 frames each, what they freed by up to 1024.
        let cpus = snapshot.caches.iter().filter(|(id, _)| *id == zone).count() as u64;
        let late = (info.managed / 64 / cpus.max(1)).clamp(64, 1024);
        let counted = info.counted_free;
        if counted > free + 64 * cpus || counted + late * cpus < free {
            return broken(
                "I-2",
                format!("zone {zone}'s watermarks see {counted} free, not {free}"),
            );
        }
        if info.blocks != blocks {
            return broken("I-2", format!("zone {zone} counts blocks it does not have"));
        }
        let of_caches: u64 =
            snapshot.caches.iter().filter(|(id, _)| *id == zone).map(|(_, c)| c.count).sum();
        if of_caches != cached {
            return broken("I-2", format!("zone {zone}'s caches count {of_caches}, not {cached}"));
        }
        let allocated = allocated_in(snapshot, model, zone);
        let sum = free + cached + isolated + allocated;
        if sum != info.managed {
            return broken(
                "I-2",
                format!(
                    "zone {zone}: {free} free + {cached} cached + \
                     {isolated} isolated + {allocated} allocated = {sum}, but {} are managed",
                    info.managed
                ),
            );
        }
    }
    Ok(())
}

/// I-5: two free buddies of one zone, of migrate types that requests name or of the same type, are one
/// block, unless the policy defers that merge: then one of them says so, and the zone knows how many do.
///
/// # Errors
/// Two that are not, a frame that says so under a policy that defers nothing, a wrong count.
pub fn check_merged(snapshot: &Snapshot, rules: &Rules) -> Checked {
    let mut listed = vec![None; snapshot.states.len()];
    for block in &snapshot.found {
        if let (Place::Listed { order, .. }, Some(at)) = (block.place, snapshot.index(block.pfn)) {
            listed[at] = Some((block.zone, class(block.place)));
            // The table starts at a largest block: an index has the buddy of its pfn.
            let both = listed.get(at ^ order.frames() as usize) == Some(&listed[at]);
            let skipped = |at: usize| snapshot.states[at] == FrameState::MERGE_SKIPPED;
            let deferred =
                skipped(at) || snapshot.states.get(at ^ 1).is_some_and(|_| skipped(at ^ 1));
            let may = (rules.defers)(order) && deferred;
            if both && order < Order::MAX && !may {
                return broken("I-5", format!("{block:?} and its buddy are both free"));
            }
            if skipped(at) && !(rules.defers)(order) {
                return broken("I-5", format!("the merge of {block:?} was skipped"));
            }
        }
    }
    for info in &snapshot.zones {
        let of_zone = snapshot.found.iter().filter(|block| block.zone == info.zone);
        let skipped = of_zone
            .filter_map(|block| snapshot.index(block.pfn))
            .filter(|&at| snapshot.states[at] == FrameState::MERGE_SKIPPED)
            .count() as u64;
        if skipped != info.merge_skipped {
            let (zone, counted) = (info.zone, info.merge_skipped);
            return broken(
                "I-5",
                format!("zone {zone} counts {counted} skipped merges, found were {skipped}"),
            );
        }
    }
    Ok(())
}

/// A place as one of those that buddies merge in, whatever the preset: types that requests name
/// count as one.
fn class(place: Place) -> Place {
    match place {
        Place::Listed { order, migrate } if migrate.is_requestable() => {
            Place::Listed { order, migrate: MigrateType::Movable }
        }
        other => other,
    }
}

/// I-7: the work of a lock hold is bounded.
///
/// # Errors
/// A zone that had a longer one.
pub fn check_holds(snapshot: &Snapshot, rules: &Rules) -> Checked {
    match snapshot.zones.iter().find(|zone| zone.events.hold_max > rules.hold) {
        Some(zone) => {
            let (id, max) = (zone.zone, zone.events.hold_max);
            broken("I-7", format!("the lock of zone {id} was held for {max} steps of work"))
        }
        None => Ok(()),
    }
}

/// I-7: what the host saw of locks and callbacks.
///
/// # Errors
/// The first fault.
pub fn check_faults(faults: &[String]) -> Checked {
    faults.first().map_or(Ok(()), |fault| broken("I-7", fault.clone()))
}

/// Frames handed out, less frames given back, are out, zone by zone.
///
/// # Errors
/// Counters that do not add up.
pub fn check_counters(snapshot: &Snapshot, model: &Model<'_>) -> Checked {
    for info in &snapshot.zones {
        let caches = snapshot.caches.iter().filter(|(zone, _)| *zone == info.zone);
        let (mut given, mut back) = (info.events.direct_alloc, info.events.direct_free);
        for (_, cache) in caches {
            given += cache.events.alloc;
            back += cache.events.free;
        }
        let allocated = allocated_in(snapshot, model, info.zone);
        if given != back + allocated {
            return broken(
                "counters",
                format!(
                    "zone {} counts {given} frames out and {back} back, but {allocated} are out",
                    info.zone
                ),
            );
        }
        if info.events.refused > 0 {
            return broken("counters", format!("zone {} refused frames of a cache", info.zone));
        }
    }
    Ok(())
}

/// The high-atomic reserve has as many pageblocks as it counts, and at most a hundredth of
/// the zone.
///
/// # Errors
/// A reserve that has not.
pub fn check_reserve(snapshot: &Snapshot) -> Checked {
    for info in &snapshot.zones {
        let reserved = (info.zone, MigrateType::HighAtomic);
        let count = snapshot.pageblocks.iter().filter(|&&block| block == Some(reserved)).count();
        if count as u64 != u64::from(info.high_atomic_pageblocks) {
            let (zone, counted) = (info.zone, info.high_atomic_pageblocks);
            return broken("reserve", format!("zone {zone} has {count} pageblocks, not {counted}"));
        }
        let limit = info.managed / 100 / snapshot.pageblock_order.frames();
        if count as u64 > limit {
            return broken("reserve", format!("{count} pageblocks, {limit} are allowed"));
        }
    }
    Ok(())
}

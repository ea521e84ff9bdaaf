//! Whether the clusters on the order-0 lists are what the zone's array says.
//!
//! ```
//! use zonal::platform::single::SingleThread;
//! use zonal::preset::Cluster;
//! use zonal_testkit::cluster_check::check_clusters;
//! use zonal_testkit::shape::Shape;
//! use zonal_testkit::world::with_world;
//! with_world::<SingleThread, Cluster, _>(Shape::Huge, |world| {
//!     assert_eq!(check_clusters(&world.allocator), Ok(()));
//! });
//! ```

use crate::checkers::{Checked, Violation};
use zonal::frame::FrameState;
use zonal::inspect::ListCluster;
use zonal::pcp::Tuning;
use zonal::platform::Platform;
use zonal::policy::PcpPolicy;
use zonal::policy::Policy;
use zonal::{Allocator, MigrateType, Pfn, ZoneId};

/// What walking a list came by: the cluster that a run of neighbours belongs to.
struct Run {
    cluster: ListCluster,
    last: Pfn,
    frames: u32,
    skipped: u32,
}

fn broken(detail: String) -> Checked {
    Err(Violation { rule: "clusters", detail })
}

/// The members of a cluster are neighbours on one list; its entry knows the last of them, how
/// many they are (at most a batch) and how many are merge-skipped; no entry has two clusters, and
/// none is in use without one. Exact only when nothing else runs.
///
/// # Errors
/// The first cluster that is not so.
pub fn check_clusters<P: Platform, S: Policy>(allocator: &Allocator<'_, P, S>) -> Checked {
    for zone in (0..allocator.zone_count() as u8).map(ZoneId) {
        let batch = batch_of(allocator, zone);
        let (mut seen, mut used) = (Vec::new(), 0);
        for migrate in MigrateType::ALL {
            let (runs, entries) = runs(allocator, zone, migrate);
            used = entries;
            for run in runs {
                let ListCluster { number, tail, count, skipped } = run.cluster;
                let is = (run.last, run.frames, run.skipped);
                if is != (tail, count, skipped) || count > batch {
                    let found = format!("{is:?} found, at most {batch} allowed");
                    return broken(format!("{migrate:?} in {zone}: {:?}: {found}", run.cluster));
                }
                seen.push(number);
            }
        }
        let clusters = seen.len();
        seen.sort_unstable();
        seen.dedup();
        if (seen.len(), seen.len() as u32) != (clusters, used) {
            let distinct = seen.len();
            return broken(format!(
                "zone {zone}: {clusters} clusters in {distinct} entries, {used} in use"
            ));
        }
    }
    Ok(())
}

/// The clusters of a list from its head on, as far as neighbours say the same; and the entries
/// in use in the zone.
fn runs<P: Platform, S: Policy>(
    allocator: &Allocator<'_, P, S>,
    zone: ZoneId,
    migrate: MigrateType,
) -> (Vec<Run>, u32) {
    let mut runs: Vec<Run> = Vec::new();
    let mut before = None;
    let used = allocator.visit_clusters(zone, migrate, &mut |pfn, cluster| {
        let skipped = u32::from(allocator.frame_state(pfn) == Some(FrameState::MERGE_SKIPPED));
        match (cluster, runs.last_mut()) {
            (Some(cluster), Some(run)) if before == Some(cluster) => {
                run.last = pfn;
                run.frames += 1;
                run.skipped += skipped;
                debug_assert_eq!(run.cluster, cluster);
            }
            (Some(cluster), _) => runs.push(Run { cluster, last: pfn, frames: 1, skipped }),
            (None, _) => {}
        }
        before = cluster;
    });
    (runs, used)
}

fn batch_of<P: Platform, S: Policy>(allocator: &Allocator<'_, P, S>, zone: ZoneId) -> u32 {
    let config = allocator.plan().config();
    // Clusters may be as large as they were when the zone was at its largest.
    let zone = &allocator.plan().zones()[usize::from(zone.0)];
    let managed = zone.managed + zone.later;
    let (cpus, pcp_batch) = (config.cpus, config.pcp_batch);
    let (pcp_high, pageblock_order) = (config.pcp_high, config.pageblock_order);
    let tuning = Tuning {
        managed,
        cpus,
        // The batch does not follow from these two.
        cpus_of_node: cpus,
        low: 0,
        pcp_batch,
        pcp_high,
        regions: config.regions,
        pageblock_order,
    };
    S::Pcp::batch(tuning)
}

use super::Cluster;
use crate::policy::{cluster::CutAndJoin, merge::SkipSingles};
use crate::zone::lists::BuddyLists;

crate::preset! {
    /// Linux 4.16 with patches 2 to 4 of Lu's series: as [`Cluster`], and a full batch of movable
    /// frames goes back as one cluster.
    pub ClusterFree = "ClusterFree", over Cluster { Free = BuddyLists<SkipSingles, CutAndJoin> }
}

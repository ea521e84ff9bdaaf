//! The order-0 list against a model of it: which frames it has, in which order, in which
//! clusters. Random frees (merge-skipped and merged), refills and drains.

use super::{MOVABLE, W, clusters, free, scrap, zone};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::VecDeque;
use zonal::policy::FreeMemory;
use zonal::policy::Policy;
use zonal::preset::{Cluster, ClusterFree};
use zonal::{CpuId, MigrateType, Pfn};
use zonal_testkit::cluster_check::check_clusters;
use zonal_testkit::suite::effort;

/// Of four frames the first two take part; the others are held throughout, so that no block is
/// larger than two.
const PAIRS: usize = 24;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A held frame goes to the list, its merging skipped.
    Free(usize),
    /// A held frame goes to the list, merging.
    FreeMerged(usize),
    /// This many held frames go to the list in batches.
    FreeMany(usize),
    /// One frame is taken, with a refill; the rest of the refill goes back.
    Take,
}

/// From the head on, the head of each cluster first.
#[derive(Debug)]
struct List {
    batch: usize,
    join: bool,
    singles: VecDeque<Vec<u64>>,
    /// First frames of free pairs, from the head on.
    pairs: Vec<u64>,
    held: Vec<u64>,
}

impl List {
    fn push(&mut self, pfn: u64) {
        match self.singles.front_mut() {
            Some(head) if head.len() < self.batch => head.insert(0, pfn),
            _ => self.singles.push_front(vec![pfn]),
        }
    }

    fn push_merged(&mut self, pfn: u64) {
        let has_buddy = |cluster: &Vec<u64>| cluster.contains(&(pfn ^ 1));
        let Some(at) = self.singles.iter().position(has_buddy) else { return self.push(pfn) };
        self.singles[at].retain(|&frame| frame != pfn ^ 1);
        if self.singles[at].is_empty() {
            self.singles.remove(at);
        }
        self.pairs.insert(0, pfn & !1);
    }

    /// A cache gives frames back, the coldest first.
    fn drain(&mut self, cold_first: &[u64]) {
        for batch in cold_first.chunks(self.batch) {
            if self.join && batch.len() == self.batch {
                self.singles.push_front(batch.iter().rev().copied().collect());
            } else {
                batch.iter().for_each(|&pfn| self.push(pfn));
            }
        }
    }

    /// What a refill brings, in the order of the cache.
    fn refill(&mut self) -> Vec<u64> {
        let mut cache = Vec::new();
        while cache.len() < self.batch {
            let Some(cluster) = self.singles.pop_front() else { break };
            cache.extend(cluster);
        }
        while cache.len() < self.batch {
            match self.singles.front_mut() {
                Some(cluster) => {
                    cache.push(cluster.remove(0));
                    self.singles.retain(|cluster| !cluster.is_empty());
                }
                None if self.pairs.is_empty() => break,
                None => {
                    let first = self.pairs.remove(0);
                    cache.push(first);
                    self.push(first + 1);
                }
            }
        }
        cache
    }

    fn flat(&self) -> Vec<Vec<u64>> {
        self.singles.iter().cloned().collect()
    }
}

/// Does a step on both; what cannot be done is left out.
fn act<S: Policy>(world: &W<'_, S>, list: &mut List, step: Step) {
    match step {
        Step::Free(nth) | Step::FreeMerged(nth) if !list.held.is_empty() => {
            let pfn = list.held.swap_remove(nth % list.held.len());
            let merged = matches!(step, Step::FreeMerged(_));
            let off = merged.then(|| world.allocator.disable_clusters(super::ZONE));
            free(world, &[Pfn::new(pfn)]);
            drop(off);
            if merged { list.push_merged(pfn) } else { list.push(pfn) }
        }
        Step::FreeMany(count) => {
            // Fewer than make the cache spill.
            let count = count.min(list.held.len()).min(6 * list.batch - 1);
            let some = list.held.split_off(list.held.len() - count);
            free(world, &some.iter().copied().map(Pfn::new).collect::<Vec<_>>());
            list.drain(&some);
        }
        Step::Take => {
            let mut cache = list.refill();
            let taken = world.allocator.alloc_raw(&MOVABLE).ok().map(Pfn::get);
            assert_eq!(taken, cache.first().copied());
            if let Some(pfn) = taken {
                list.held.push(pfn);
                cache.remove(0);
            }
            world.allocator.drain_cpu(CpuId(0));
            cache.reverse();
            list.drain(&cache);
        }
        Step::Free(_) | Step::FreeMerged(_) => {}
    }
}

fn run<S: Policy>(batch: u32, steps: &[Step]) {
    scrap::<S>(batch, |world, out| {
        let part = |pfn: &u64| pfn % 4 < 2;
        let held: Vec<u64> = out.iter().map(|pfn| pfn.get()).filter(part).collect();
        assert_eq!(held.len(), 2 * PAIRS);
        let (join, singles) = (S::Free::JOINS_BATCHES, VecDeque::new());
        let mut list = List { batch: batch as usize, join, singles, pairs: Vec::new(), held };
        for (nth, &step) in steps.iter().enumerate() {
            act(world, &mut list, step);
            let found: Vec<Vec<u64>> = clusters(world, MigrateType::Movable)
                .iter()
                .map(|(_, frames)| frames.iter().map(|pfn| pfn.get()).collect())
                .collect();
            assert_eq!(found, list.flat(), "after step {nth}, {step:?}");
            assert_eq!(check_clusters(&world.allocator), Ok(()), "after step {nth}, {step:?}");
            assert_eq!(zone(world).blocks[1][1] as usize, list.pairs.len());
        }
    });
}

fn property<S: Policy>() {
    let step = prop_oneof![
        4 => any::<usize>().prop_map(Step::Free),
        4 => any::<usize>().prop_map(Step::FreeMerged),
        2 => (2_usize..20).prop_map(Step::FreeMany),
        3 => Just(Step::Take),
    ];
    let cases = effort(300);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let ran = TestRunner::new(config).run(&(2_u32..=8, vec(step, 1..80)), |(batch, steps)| {
        run::<S>(batch, &steps);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_list_is_as_the_model_says() {
    property::<Cluster>();
}

#[test]
fn the_list_is_as_the_model_says_with_joins() {
    property::<ClusterFree>();
}

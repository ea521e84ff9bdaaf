//! Models of the lock-free stacks of clusters: the shipped file, compiled into this test.
//!
//! A cluster that is popped must be owned by no other thread, its array must say what was written
//! before the push, and what a former owner did must have happened before. A planted bug is
//! a word that breaks a promise under the same source; each must be caught.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test loom_cluster -- --nocapture
//! ```
#![cfg(loom)]

#[path = "../../zonal/src/pcp/depot/stack.rs"]
#[expect(dead_code, unreachable_pub, reason = "the core's file, not all of it used")]
mod cluster;
/// What `cluster` knows of its own crate.
mod platform {
    pub(crate) use zonal::platform::{AtomicWord, Platform};
}

mod loom_broken;

use cluster::{ClusterId, ClusterPool, SharedState, Stack};
use loom::cell::UnsafeCell;
use loom::thread;
use loom_broken::{NoAcquire, NoRelease, NoTag};
use std::cell::RefCell;
use std::rc::Rc;
use zonal::platform::AtomicWord;
use zonal_testkit::loom_platform::{LoomPlatform, Word, explore, spawn};

/// What is known of each cluster outside the allocator.
#[derive(Clone, Copy, Default)]
struct Known {
    owned: bool,
    /// Changes with every owner; written into the array.
    generation: u32,
}

/// Stacks over one pool, and who owns which cluster.
struct Clusters<W: AtomicWord + 'static> {
    pool: ClusterPool<'static, LoomPlatform<W>>,
    stacks: [Stack<LoomPlatform<W>>; 2],
    /// Empty clusters of two CPUs.
    empty: [Stack<LoomPlatform<W>>; 2],
    known: RefCell<[Known; 9]>,
    owners: [UnsafeCell<()>; 9],
    /// Whether loom is asked if the former owner happened before; without it only the arrays
    /// and the ownership are looked at.
    causality: bool,
}

fn number(id: &ClusterId) -> usize {
    let text = format!("{id:?}");
    text.trim_start_matches("ClusterId(").trim_end_matches(')').parse().expect("a number")
}

impl<W: AtomicWord + 'static> Clusters<W> {
    /// A pool of `capacity` clusters, of which `on_first` are on the first stack.
    fn new(capacity: usize, on_first: usize, causality: bool) -> Rc<Self> {
        // A few words a run are leaked: what they stand for, loom frees.
        let words = |n| &*(0..n).map(|_| W::new(0)).collect::<Vec<_>>().leak();
        let common = &*Box::leak(Box::new(SharedState::new()));
        let clusters = Rc::new(Self {
            pool: ClusterPool::new(words(capacity), words(capacity), common, 2),
            stacks: [Stack::new(), Stack::new()],
            empty: [Stack::new(), Stack::new()],
            known: RefCell::default(),
            owners: [(); 9].map(UnsafeCell::new),
            causality,
        });
        for _ in 0..on_first {
            let id = clusters.take_empty(0).expect("a cluster");
            clusters.push(0, id);
        }
        clusters
    }

    fn begin(&self, id: &ClusterId) -> usize {
        let at = number(id);
        let known = &mut self.known.borrow_mut()[at];
        assert!(!std::mem::replace(&mut known.owned, true), "cluster {at} is owned twice");
        known.generation += 1;
        if self.causality {
            self.owners[at].with_mut(|_| ());
        }
        at
    }

    fn end(&self, id: &ClusterId) {
        let at = number(id);
        if self.causality {
            self.owners[at].with_mut(|_| ());
        }
        assert!(std::mem::replace(&mut self.known.borrow_mut()[at].owned, false));
    }

    fn pop(&self, stack: usize) -> Option<ClusterId> {
        let id = self.stacks[stack].pop(&self.pool)?;
        let at = self.begin(&id);
        let mut frames = [0; 2];
        self.pool.read(&id, &mut frames);
        let written = self.known.borrow()[at].generation - 1;
        assert_eq!(frames, [at as u32, written], "the array of cluster {at} is stale");
        Some(id)
    }

    fn push(&self, stack: usize, id: ClusterId) {
        let at = number(&id);
        let generation = self.known.borrow()[at].generation;
        self.pool.write(&id, &[at as u32, generation]);
        self.end(&id);
        self.stacks[stack].push(&self.pool, id);
    }

    /// An empty cluster for `cpu`, from where the depot looks for one.
    fn take_empty(&self, cpu: usize) -> Option<ClusterId> {
        let own = &self.empty[cpu];
        let id = own.pop(&self.pool).or_else(|| self.pool.take_empty(own))?;
        self.begin(&id);
        Some(id)
    }

    /// Takes all empty clusters there are, when all is quiet.
    fn take_all_empty(&self) -> usize {
        let of_cpu = |cpu| std::iter::from_fn(move || self.take_empty(cpu)).count();
        of_cpu(0) + of_cpu(1)
    }

    fn put_empty(&self, id: ClusterId) {
        self.end(&id);
        self.pool.put_empty(id);
    }

    /// How many are on a stack, when all is quiet: the count and the stack must agree.
    fn quiet_len(&self, stack: usize) -> usize {
        let mut seen = 0;
        self.stacks[stack].visit(&self.pool, |_| seen += 1);
        assert_eq!(self.stacks[stack].len(), seen as u64, "the count of stack {stack}");
        seen
    }
}

fn start<W: AtomicWord, R: 'static>(
    clusters: &Rc<Clusters<W>>,
    f: impl FnOnce(&Clusters<W>) -> R + 'static,
) -> thread::JoinHandle<R> {
    let clusters = clusters.clone();
    spawn(0, move || f(&clusters))
}

/// One thread pops two clusters and pushes the first back while the other pops: the head that
/// the other saw is there again, with another cluster below it.
fn aba<W: AtomicWord + 'static>(causality: bool) {
    let clusters = Clusters::<W>::new(3, 3, causality);
    let other = start(&clusters, |c| {
        let first = c.pop(0).expect("three are there");
        let second = c.pop(0);
        c.push(0, first);
        second
    });
    let mine = [clusters.pop(0), clusters.pop(0)];
    let theirs = other.join().unwrap();
    let rest = std::iter::from_fn(|| clusters.pop(0)).collect::<Vec<_>>();
    let all = mine.into_iter().flatten().chain(theirs).chain(rest);
    all.for_each(|id| clusters.push(1, id));
    assert_eq!((clusters.quiet_len(0), clusters.quiet_len(1)), (0, 3), "none lost");
}

/// An array is written on one thread and read on another, by way of a full stack and an empty
/// one, as the depot passes clusters on.
fn pass_on<W: AtomicWord + 'static>(causality: bool) {
    let clusters = Clusters::<W>::new(2, 2, causality);
    let writer = start(&clusters, |c| {
        for _ in 0..2 {
            let Some(id) = c.pop(0) else { break };
            c.push(1, id);
        }
    });
    for _ in 0..2 {
        let Some(id) = clusters.pop(1) else { break };
        clusters.push(0, id);
    }
    writer.join().unwrap();
    assert_eq!(clusters.quiet_len(0) + clusters.quiet_len(1), 2, "none lost");
}

/// At most 4 preemptions: 9 400 runs, 0.5 s.
#[test]
fn pop_against_pop_pop_push() {
    explore("pop pop against pop pop push", Some(4), || aba::<Word>(true));
}

/// All schedules: 37 400 runs, 1.8 s.
#[test]
fn full_and_empty_stack() {
    explore("full and empty stack", None, || pass_on::<Word>(true));
}

/// At most 3 preemptions: 33 500 runs, 1.6 s.
#[test]
fn two_pop_and_push_twice() {
    explore("two pop and push twice", Some(3), || {
        let clusters = Clusters::<Word>::new(2, 2, true);
        let turn = |c: &Clusters<Word>| {
            for _ in 0..2 {
                if let Some(id) = c.pop(0) {
                    c.push(0, id);
                }
            }
        };
        let other = start(&clusters, turn);
        turn(&clusters);
        other.join().unwrap();
        assert_eq!(clusters.quiet_len(0), 2);
    });
}

/// At most 3 preemptions: 274 600 runs, 16.2 s.
#[test]
fn three_pop_and_push() {
    explore("three pop and push", Some(3), || {
        let clusters = Clusters::<Word>::new(2, 2, true);
        let turn = |c: &Clusters<Word>| {
            if let Some(id) = c.pop(0) {
                c.push(0, id);
            }
        };
        let others = [start(&clusters, turn), start(&clusters, turn)];
        turn(&clusters);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(clusters.quiet_len(0), 2);
    });
}

/// Three on one CPU want a cluster of a pool that is unused and has two: fresh ones
/// come several at once, and none is lost on the way.
///
/// At most 3 preemptions: 14 400 runs, 0.8 s.
#[test]
fn pool_runs_out() {
    explore("pool runs out", Some(3), || {
        let clusters = Clusters::<Word>::new(2, 0, true);
        let turn = |c: &Clusters<Word>| c.take_empty(0);
        let others = [start(&clusters, turn), start(&clusters, turn)];
        let mine = turn(&clusters);
        let theirs = others.map(|other| other.join().unwrap());
        let taken = theirs.into_iter().chain([mine]).flatten().count();
        assert!(taken >= 1, "the first comer finds one");
        assert_eq!(taken + clusters.take_all_empty(), 2, "each cluster once, none lost");
    });
}

/// Two CPUs take the first of the fresh clusters, one more of them than come at once.
///
/// At most 3 preemptions: 56 runs, no time to speak of.
#[test]
fn fresh_for_two_cpus() {
    explore("fresh for two CPUs", Some(3), || {
        let clusters = Clusters::<Word>::new(9, 0, true);
        let other = start(&clusters, |c| c.take_empty(1));
        let mine = clusters.take_empty(0);
        let theirs = other.join().unwrap();
        assert!(mine.is_some() && theirs.is_some(), "enough for both");
        assert_eq!(2 + clusters.take_all_empty(), 9, "each cluster once, none lost");
    });
}

/// One cluster, taken and given back by three: the one that gets it owns it alone.
///
/// At most 3 preemptions: 24 100 runs, 1.4 s.
#[test]
fn pool_of_one_changes_hands() {
    explore("pool of one", Some(3), || {
        let clusters = Clusters::<Word>::new(1, 0, true);
        let turn = |c: &Clusters<Word>| {
            let taken = c.take_empty(0);
            let got = taken.is_some();
            taken.into_iter().for_each(|id| c.put_empty(id));
            got
        };
        let others = [start(&clusters, turn), start(&clusters, turn)];
        let mine = turn(&clusters);
        let theirs = others.map(|other| other.join().unwrap());
        assert!(mine || theirs[0] || theirs[1], "the first comer finds it");
        assert_eq!(clusters.take_all_empty(), 1, "not lost");
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_no_release() {
    explore("canary: no release", None, || pass_on::<NoRelease>(true));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_no_acquire() {
    explore("canary: no acquire", None, || pass_on::<NoAcquire>(true));
}

#[test]
#[should_panic(expected = "is stale")]
fn canary_no_release_stale_array() {
    explore("canary: no release, arrays", None, || pass_on::<NoRelease>(false));
}

#[test]
#[should_panic(expected = "is stale")]
fn canary_no_acquire_stale_array() {
    explore("canary: no acquire, arrays", None, || pass_on::<NoAcquire>(false));
}

#[test]
#[should_panic(expected = "owned twice")]
fn canary_no_tag() {
    explore("canary: no tag", None, || aba::<NoTag>(true));
}

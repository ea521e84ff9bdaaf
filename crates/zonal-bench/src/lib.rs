//! Page-frame allocators measured side by side on real threads: the engine behind `zonal bench`
//! and the first run of `zonal`.
//!
//! Nothing here names a preset or a peer: a program lists the [entries](subjects::Entry) that it
//! has, and with which [workloads](program::Programs), and only those are compiled.
//!
//! ```text
//! zonal                                     page-fault1, zonal beside fast peers, a few seconds
//! zonal bench page-fault1                   every preset and peer, one thread and all CPUs
//! zonal bench all --json --out results.json every workload, one JSON object a line
//! zonal bench page-fault1 --touch           real pages, beside the kernel's own page faults
//! ```
//!
//! # How the numbers are taken
//!
//! **What is measured.** `ns_per_frame` is wall time, per frame and per thread, to allocate the
//! frame *and* free it. For `order9` and `mixed` it is per block, for `producer-consumer` per
//! frame and pair of threads. A row is the median over its samples; the fastest and the slowest
//! stand beside it.
//!
//! **Samples.** A sample is a loop around whole repetitions of a workload, about 10 ms of them
//! (found by calibration), between two readings of the clock; nothing inside the loop reads a
//! clock, a counter or a flag, except that threads look once a repetition whether the first of
//! them is done. One repetition before the clock starts warms up. Threads start together from a
//! spinning barrier and stop together, so that none is measured running alone; their rates are
//! added up, which makes unfair locks count as what they cost.
//!
//! **In turn.** All subjects with all thread counts are open at once and give one sample each a
//! round. Whatever drifts hits all of them alike, and ratios within a run mean more than numbers
//! across runs. A subject is initialised once a workload and thread count, outside the clock.
//!
//! **No overhead between.** Loops are generic over the subject and compiled for each, see
//! [`subject`]. After every call the allocator's state is made to escape, so that an inlined
//! allocation cannot be cancelled against its free (see [`loops`]). The subject `null` is a
//! counter in place of an allocator: what it measures is the harness. `private-stack` is an array
//! of pfns per thread, unshared: what no allocator can beat.
//!
//! **Pinned threads** ([`pool`]) live as long as the run; thread `i` has the `i`-th CPU the
//! process may use. A sample in which a thread lost its CPU (an involuntary context switch, a tenth
//! of the wall time missing from its CPU time though it did not wait, or a start so late that the
//! others ran alone) is dropped and counted in `dropped`. While
//! that leaves less than half of them, more are taken, up to twice as many; if it leaves none, all
//! are kept and the row is marked `disturbed`.
//!
//! **Distance** ([`rendezvous`]). A virtual machine's CPUs may share a cache now and not in a
//! minute, which changes two-thread numbers up to tenfold. Before and after every sample on
//! several threads the round trip of a cache line between the CPUs is measured; up to 200 ns is
//! `near`, more is `far`, and the two are never mixed: each has its own row. A sample during which
//! the class changed is dropped. While that leaves none, up to eight times as many are taken; if
//! there is none then either, the case has no row, and the remarks say so.
//!
//! **Frees.** `page-fault1` and `random-free` allocate all before they free all, and say what of the time
//! frees took (`free_ns`).
//!
//! **Scaling** is throughput on N threads against N times the throughput on one, from the same run.
//!
//! **Memory.** Subjects that manage frames manage `--memory` of them, reserved without memory
//! behind; without `--touch` the frames themselves are never accessed by the harness (an allocator
//! that writes into free frames does so in its own time). With `--touch`, `page-fault1` and
//! `random-free` write one byte to each frame allocated. An arena's frames stay resident between
//! repetitions; the subject `kernel-mmap` maps, touches and unmaps the same 128 MiB instead, which
//! is what a process without an arena does.
//!
//! **Processes.** Peers run in processes of their own ([`child`]), one a case: one that ends, for
//! instance because memory is refused to it, has a row that says so, and the others go on. They are
//! sampled in turn with all others, on the same CPUs; the repetition before the clock starts warms up
//! what the other processes displaced.
//!
//! **Peers** ([`subjects`]) are set up as their documentation shows and locked as it says; the
//! lines under a table and the `note` of a JSON line say how. General-purpose allocators are
//! called through `GlobalAlloc` without being installed, with page-aligned layouts.
//!
//! # Adding a subject
//!
//! Implement [`subject::Subject`] and list a [`subjects::Entry`] of it in the program that shows it;
//! zonal's presets are [`subjects::zonal::entries_of`] their type.

pub mod aging;
pub mod args;
pub mod bench;
pub mod case;
pub mod child;
pub mod engine;
pub mod figures;
pub mod headline;
pub mod loops;
pub mod machine;
pub mod memory;
pub mod options;
pub mod pages;
pub mod plan;
pub mod pool;
pub mod program;
pub mod published;
pub mod rendezvous;
pub mod report;
pub mod rng;
pub mod stats;
pub mod subject;
pub mod subjects;
pub mod tails;
pub mod team;
pub mod workload;

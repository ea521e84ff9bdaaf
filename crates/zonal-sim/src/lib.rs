//! A many-core machine in a box.
//!
//! The allocator's source runs, unchanged, on hundreds of virtual CPUs. Each is a coroutine with
//! a clock in cycles; every access to an atomic of the platform and every lock charges it what
//! the [machine] says that a cache line at that distance costs. The CPU with the
//! smallest clock runs next, so that a run follows from its machine, its
//! [`Spec`](run::Spec) and its seed, to the cycle.
//!
//! What the model leaves out is written in `docs/simulator.md`.

mod channel;
mod coroutine;
mod engine;
pub mod explore;
mod host;
pub mod lines;
pub mod lock;
mod lru;
pub mod machine;
pub mod mix;
pub mod outcome;
pub mod platform;
pub mod profile;
pub mod run;
mod schedule;
mod sleeper;
pub mod slot;
pub mod space;
mod space_lock;
mod speeds;
mod task;
pub mod ticks;
mod workload;
mod world;

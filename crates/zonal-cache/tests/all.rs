//! All tests that need no program of their own: the cache is compiled once for each policy, not again in every file.
#![cfg(feature = "std")]

mod behaviour;
mod blocks;
mod bytes;
mod counted;
mod cuts;
mod device;
mod door;
mod errors;
mod events;
mod fixed;
mod flushes;
mod hanging;
mod history;
mod load;
mod lru;
mod model;
mod panics;
mod pieces;
mod reclaim;
mod reclaimer;
mod region;
mod requests;
mod ring;
mod short;
mod stats;
mod syncs;
mod truncate;
mod unlocked;
mod watched;
mod writer;

//! All tests but the model checkers' in one program: the allocator is compiled once for each host
//! and preset, not again in every file.
#![cfg(not(loom))]
#![allow(missing_docs, reason = "tests")]

mod boot;
mod bulk_free;
mod canaries;
mod clusters;
mod compaction;
mod compaction_hints;
mod compaction_policies;
mod contiguous;
mod dirty;
mod errors;
mod fair;
mod hiding;
mod ledger;
mod nodes;
#[path = "online/main.rs"]
mod online;
mod pressure;
mod reach;
mod regressions;
mod split;
mod stress;
mod suite;
mod trace;

//! All tests that need no program of their own: arenas are compiled once, not again in every file.
#![cfg(not(loom))]

mod arena;
mod callbacks;
mod compactor;
mod errors;
mod given_back;
mod huge_pool;
mod pager;
mod shelf;
mod usdt;

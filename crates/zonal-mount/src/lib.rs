//! `zonal mount`: a directory mounted by FUSE, whose file data are in [`zonal_cache`]: never more memory
//! for all of it than the bound, whatever is read and written.
//!
//! ```no_run
//! use zonal_cache::S3Fifo;
//! use zonal_mount::{Mounted, Options};
//!
//! let options = Options { memory: 256 << 20, ..Options::default() };
//! let mounted = Mounted::<S3Fifo>::start("/srv/images".as_ref(), "/mnt".as_ref(), &options)?;
//! std::fs::write("/mnt/file", b"through the cache")?;
//! mounted.unmount()?;
//! let stats = mounted.wait()?;
//! assert!(stats.used <= stats.bound);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! How it works: names, attributes and directories are those of the directory below, asked for each time. An
//! inode is an `O_PATH` descriptor, so it is found whatever it is called meanwhile. The data of a file go
//! through one [`CacheFile`](zonal_cache::CacheFile), which all that have it open share. The kernel
//! keeps no copy of them (`FOPEN_DIRECT_IO`), but for pages that a process has mapped.

#![forbid(unsafe_code)]

use clap::Subcommand;

mod attributes;
mod beside;
mod budget;
pub mod command;
mod contents;
mod data;
mod directory;
pub mod error;
mod extended;
mod file_system;
mod names;
mod nodes;
mod session;
mod shared;
mod statistics;

pub use error::MountError;
pub use session::{LEAST_MEMORY, Mounted, Options, can_mount};

/// The command line: the part of the `zonal` command that this program has.
pub type Cli = zonal_cli::command::Cli<Command>;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount a directory whose file data are cached, below a bound on memory
    Mount(command::MountArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

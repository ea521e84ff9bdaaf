//! What the commands of zonal's lab share: sizes and times as people write them, errors and exit
//! codes, files that results go to, tables, progress bars, threads that begin together.
//!
//! ```
//! assert_eq!(zonal_cli::size::parse_size("256MiB"), Ok(256 << 20));
//! ```

pub mod bar;
#[cfg(feature = "checks")]
pub mod checks;
pub mod command;
pub mod error;
pub mod interrupt;

pub mod outfile;
pub mod provenance;
pub mod size;
pub mod table;
pub mod terminal;
pub mod together;

//! A zone instance and its free memory.
//!
//! May import `types`, `platform`, `frame`, `boot` and `trace`. The zone lock guards what
//! [`lists`] keeps; watermarks, sizes and published counts are relaxed words.

pub(crate) mod instance;
pub(crate) mod lists;

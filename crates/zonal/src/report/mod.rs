//! What an operator can see, in the formats that Linux tools already parse: values over an
//! [`Allocator`] that print as `/proc/buddyinfo`, `/proc/pagetypeinfo`, `/proc/zoneinfo`,
//! `/proc/vmstat` and debugfs' `extfrag/unusable_index`.
//!
//! They print only what zonal has; what only zonal has is named `zonal_…`. Counts are in frames
//! (Linux's "pages"). Nothing is allocated, and each zone is read under its own lock, one after
//! the other: while other CPUs allocate, the lines of a report are of different moments. May import
//! everything but `preset`. There is no state here, and nothing to guard.
//!
//! Linux names a zone by node and type. Where a zone type has several instances, the first has
//! the plain name and the others a number: `Normal`, `Normal_1`, `Normal_2`.
//!
//! ```
//! # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
//! use zonal::report::{BuddyInfo, VmStat};
//! # example::with_small::<zonal::preset::Zonal>(|allocator| {
//! let text = format!("{}{}", BuddyInfo(allocator), VmStat(allocator));
//! assert!(text.starts_with("Node 0, zone      DMA "));
//! assert!(text.contains("\nnr_free_pages 16384\n"));
//! # });
//! ```

mod buddyinfo;
mod fragmentation;
pub mod info;
pub mod inspect;
mod pagetypeinfo;
mod vmstat;
mod zoneinfo;

pub use buddyinfo::BuddyInfo;
pub use fragmentation::{UnusableFree, unusable_permille};
pub use pagetypeinfo::PageTypeInfo;
pub use vmstat::VmStat;
pub use zoneinfo::ZoneStatus;

use crate::alloc::allocator::Allocator;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::report::info::ZoneInfo;
use crate::types::units::ZoneId;
use crate::types::zone_type::ZoneType;
use core::fmt::{self, Write};

/// Every zone as it is when the iterator gets there.
fn zones<P: Platform, S: Policy>(
    allocator: &Allocator<'_, P, S>,
) -> impl Iterator<Item = ZoneInfo> {
    (0..allocator.zone_count()).filter_map(|id| allocator.zone_info(ZoneId(id as u8)))
}

/// `Node 0, zone   Normal`: how every line about a zone begins.
struct ZoneHead<'a>(&'a ZoneInfo);

impl fmt::Display for ZoneHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node {}, zone {:>8}", self.0.node, ZoneName::new(self.0))
    }
}

/// The name of a zone instance; see the [module](self). Kept as text because only text that is
/// there as a whole can be padded.
struct ZoneName {
    text: [u8; Self::ROOM],
    len: usize,
}

impl ZoneName {
    /// For the longest name, `Movable_255`.
    const ROOM: usize = {
        let (mut longest, mut at) = (0, 0);
        while at < ZoneType::ALL.len() {
            let name = ZoneType::ALL[at].name().len();
            longest = if name > longest { name } else { longest };
            at += 1;
        }
        longest + "_255".len()
    };

    fn new(zone: &ZoneInfo) -> Self {
        let mut name = Self { text: [0; Self::ROOM], len: 0 };
        let kind = zone.zone_type.name();
        let written = match zone.instance {
            0 => name.write_str(kind),
            n => write!(name, "{kind}_{n}"),
        };
        debug_assert!(written.is_ok(), "a zone name is longer than there is room");
        name
    }
}

impl Write for ZoneName {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.text.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(core::str::from_utf8(&self.text[..self.len]).unwrap_or_default())
    }
}

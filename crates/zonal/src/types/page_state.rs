//! What a host counts its pages by.
//!
//! ```
//! use zonal::page_state::PageState;
//!
//! assert_eq!(PageState::Dirty.name(), "nr_dirty");
//! assert_eq!(PageState::ALL[PageState::Dirty as usize], PageState::Dirty);
//! ```

/// How many states there are.
pub const NR_PAGE_STATES: usize = 5;

/// Something that a host counts its pages by. A page may be in several at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PageState {
    /// Page cache that was not used lately.
    InactiveFile = 0,
    /// Page cache that was.
    ActiveFile = 1,
    /// Page cache that the disk does not have yet.
    Dirty = 2,
    /// Page cache on its way to the disk.
    Writeback = 3,
    /// Page cache that a server has, but not yet on its disk.
    Unstable = 4,
}

impl PageState {
    /// All of them.
    pub const ALL: [Self; NR_PAGE_STATES] =
        [Self::InactiveFile, Self::ActiveFile, Self::Dirty, Self::Writeback, Self::Unstable];

    /// The name that `/proc/zoneinfo` gives it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InactiveFile => "nr_inactive_file",
            Self::ActiveFile => "nr_active_file",
            Self::Dirty => "nr_dirty",
            Self::Writeback => "nr_writeback",
            Self::Unstable => "nr_unstable",
        }
    }
}

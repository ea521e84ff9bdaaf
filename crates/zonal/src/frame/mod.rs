//! The frame table: what is known of each frame and each pageblock, in memory of the caller.
//!
//! May import `types` and `platform`. Who may write a state byte stands at [`FrameState`], who may
//! write a pageblock's word at [`PageblockWord`]; a link word is guarded by the guard of the list
//! that its frame is on.
//!
//! ```
//! use zonal::frame::{FrameKind, FrameState};
//! use zonal::Order;
//! let state = FrameState::allocated(Order::HUGE);
//! assert_eq!((state.kind(), state.order()), (FrameKind::Allocated, Order::HUGE));
//! ```

pub(crate) mod links;
mod locate;
mod pageblock;
mod release;
mod state;
mod table;
mod view;

pub(crate) use pageblock::Owner;
pub use pageblock::PageblockWord;
pub use release::{ByExchange, ByStore, Release};
pub(crate) use state::{ALLOCATED, CACHED};
pub use state::{FrameKind, FrameState};
pub use table::FrameTable;
pub(crate) use view::{PageblockView, PageblocksView};

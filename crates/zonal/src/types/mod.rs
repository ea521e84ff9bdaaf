//! The words that the whole allocator speaks: units, migrate and zone types, requests, blocks,
//! errors.
//!
//! Imports nothing of the crate. Nothing here has state; every value is its holder's own.
//!
//! ```
//! use zonal::{MigrateType, Order, Request};
//! let request = Request::new(Order::HUGE).migrate(MigrateType::Movable);
//! assert_eq!(request.order().frames(), 512);
//! ```

pub mod block;
pub mod bounds;
pub mod counts;
pub mod error;
pub mod mark;
pub mod migrate_type;
pub mod migration;
pub mod page_state;
pub mod request;
pub mod units;
pub mod zone_type;

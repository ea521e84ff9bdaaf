//! First come, first served; what touches is merged at the back. For devices that order requests
//! themselves. Source: Linux 3.16.
//!
//! ```
//! use zonal_cfq::elevator::{Elevator, Next};
//! use zonal_cfq::noop::Noop;
//! use zonal_cfq::request::Request;
//! use zonal_cfq::units::{Process, Sector, Sectors, Time};
//!
//! let mut elevator = Elevator::new(Noop::default(), Sector(1000));
//! for start in [500, 0] {
//!     elevator.submit(Time(0), Request::read(Process(1), Sector(start), Sectors(8)))?;
//! }
//! let Next::Go(first) = elevator.dispatch(Time(1)) else { panic!("there are two") };
//! assert_eq!(first.start(), Sector(500));
//! # elevator.requeue(first).unwrap();
//! # Ok::<(), zonal_cfq::elevator::Refused>(())
//! ```

use alloc::collections::BTreeMap;

use crate::policy::{Choice, Policy};
use crate::table::{RequestId, Table};
use crate::units::Time;

/// The scheduler noop.
#[derive(Debug, Default)]
pub struct Noop {
    /// By order of arrival.
    queue: BTreeMap<u64, RequestId>,
}

impl Policy for Noop {
    fn name(&self) -> &'static str {
        "noop"
    }

    fn merges_in_front(&self) -> bool {
        false
    }

    fn insert(&mut self, table: &mut Table, id: RequestId, _: Time) {
        self.queue.insert(table.get(id).serial, id);
    }

    fn withdraw(&mut self, table: &mut Table, id: RequestId, _: Time) {
        self.queue.remove(&table.get(id).serial);
    }

    fn next(&mut self, _: &mut Table, _: Time) -> Choice {
        self.queue.pop_first().map_or(Choice::Nothing, |(_, id)| Choice::Go(id))
    }
}

//! A planted bug: what a checker, or a search for bugs, must find.
//!
//! ```
//! use zonal::policy::Policy;
//! use zonal_testkit::canary::Lazybones;
//!
//! zonal::preset! {
//!     /// Requests fail while other zones have memory.
//!     OneZone = "OneZone", over zonal::preset::Linux416 { Walk = Lazybones }
//! }
//! assert_eq!(OneZone::NAME, "OneZone");
//! ```

use zonal::plan::Plan;
use zonal::platform::Platform;
use zonal::policy::Walk;
use zonal::policy::walk::{Miss, Walked, ZoneSet};
use zonal::watermark::Mark;
use zonal::{NodeId, ZoneType};

/// Planted bug: looks at the first zone only.
#[derive(Debug)]
pub struct Lazybones;

impl Walk for Lazybones {
    type Table<P: Platform> = ();
    type Zone<P: Platform> = ();
    type Cpu = ();
    type Homes = ();

    fn table<P: Platform>(_: &Plan) {}
    fn new_zone<P: Platform>() {}
    fn new_cpu() {}
    fn homes(_: &Plan, _: NodeId, _: ZoneSet) {}

    fn find<'z, P: Platform, Z: Walked<P, Self>, R>(
        (): &(),
        zones: &[Option<&'z Z>],
        _: ZoneType,
        _: Mark,
        mut attempt: impl FnMut(&'z Z) -> Result<R, Miss>,
    ) -> Option<R> {
        zones.iter().take(1).find_map(|zone| attempt((*zone)?).ok())
    }
}

use crate::policy::{Policy, Trace};
use core::fmt;
use core::marker::PhantomData;

/// The preset `S` with the trace policy `T`.
///
/// ```
/// use zonal::policy::Policy;
/// use zonal::policy::trace::Off;
/// use zonal::preset::{Linux416, Traced};
/// assert_eq!(<Traced<Linux416, Off> as Policy>::NAME, "Linux416");
/// ```
pub struct Traced<S, T>(PhantomData<fn() -> (S, T)>);

impl<S: Policy, T: Trace> Policy for Traced<S, T> {
    const NAME: &'static str = S::NAME;
    type Free = S::Free;
    type Pcp = S::Pcp;
    type Compact = S::Compact;
    type Walk = S::Walk;
    type Dirty = S::Dirty;
    type BulkFree = S::BulkFree;
    type Split = S::Split;
    type Trace = T;
}

impl<S: Policy, T> fmt::Debug for Traced<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Traced<{}>", S::NAME)
    }
}

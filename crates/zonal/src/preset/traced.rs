use crate::policy::{Policy, Trace};

crate::preset! {
    /// The preset `S` with the trace policy `T`.
    ///
    /// ```
    /// use zonal::policy::Policy;
    /// use zonal::policy::trace::Off;
    /// use zonal::preset::{Linux416, Traced};
    /// assert_eq!(<Traced<Linux416, Off> as Policy>::NAME, "Linux416");
    /// ```
    pub Traced<S: Policy, T: Trace> = S::NAME, over S { Trace = T }
}

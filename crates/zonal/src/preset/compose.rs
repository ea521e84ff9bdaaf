//! A preset as what it changes over another.

/// Declares a preset that differs from another in the parts that are named.
///
/// A part is an associated type of [`Policy`](crate::policy::Policy); what is not named is as the
/// base has it. The type is `Clone`, `Copy` and `Debug`, and visible as written; it may have
/// parameters, each with a bound.
///
/// ```
/// use zonal::policy::{Policy, Walk, compact, split, walk};
/// use zonal::preset::{Linux416, Zonal};
///
/// zonal::preset! {
///     /// Linux 4.16 with several zone instances and the cheapest compaction.
///     pub Mine = "Mine", over Linux416 { Split = split::BySize, Compact = compact::Cheapest }
/// }
///
/// zonal::preset! {
///     /// Any preset with the walk `W`.
///     pub Walking<S: Policy, W: Walk> = S::NAME, over S { Walk = W }
/// }
///
/// fn walks<S: Policy>() -> &'static str {
///     core::any::type_name::<S::Walk>()
/// }
/// assert_eq!((Mine::NAME, Walking::<Mine, walk::Fair>::NAME), ("Mine", "Mine"));
/// assert_eq!(walks::<Mine>(), walks::<Zonal>());
/// assert!(walks::<Walking<Mine, walk::Fair>>().ends_with("Fair"));
/// ```
///
/// A part that is misspelt or named twice does not compile:
///
/// ```compile_fail
/// zonal::preset! {
///     /// There is no such part.
///     pub Mine = "Mine", over zonal::preset::Zonal { Merge = zonal::policy::merge::Always }
/// }
/// ```
#[macro_export]
macro_rules! preset {
    (
        $(#[$meta:meta])*
        $vis:vis $name:ident = $text:expr, over $base:ty { $($part:ident = $given:ty),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name;

        impl $crate::policy::Policy for $name {
            const NAME: &'static str = $text;
            $(type $part = $given;)*
            $crate::__preset_rest!($base; $($part)*);
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis $name:ident<$($parameter:ident: $bound:path),+ $(,)?> = $text:expr,
        over $base:ty { $($part:ident = $given:ty),* $(,)? }
    ) => {
        $(#[$meta])*
        $vis struct $name<$($parameter),+>(
            ::core::marker::PhantomData<fn() -> ($($parameter,)+)>,
        );

        impl<$($parameter: $bound),+> $crate::policy::Policy for $name<$($parameter),+> {
            const NAME: &'static str = $text;
            $(type $part = $given;)*
            $crate::__preset_rest!($base; $($part)*);
        }

        impl<$($parameter),+> Clone for $name<$($parameter),+> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($parameter),+> Copy for $name<$($parameter),+> {}

        impl<$($parameter: $bound),+> ::core::fmt::Debug for $name<$($parameter),+> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let name = <Self as $crate::policy::Policy>::NAME;
                ::core::write!(f, "{}<{name}>", ::core::stringify!($name))
            }
        }
    };
}

/// The parts of a base that a preset does not name.
#[doc(hidden)]
#[macro_export]
macro_rules! __preset_rest {
    ($base:ty; $($given:ident)*) => {
        $crate::__preset_part!(Free, $base; $($given)*);
        $crate::__preset_part!(Pcp, $base; $($given)*);
        $crate::__preset_part!(Compact, $base; $($given)*);
        $crate::__preset_part!(Walk, $base; $($given)*);
        $crate::__preset_part!(Dirty, $base; $($given)*);
        $crate::__preset_part!(BulkFree, $base; $($given)*);
        $crate::__preset_part!(Split, $base; $($given)*);
        $crate::__preset_part!(Trace, $base; $($given)*);
    };
}

/// A part as the base has it, unless it is one of those given.
#[doc(hidden)]
#[macro_export]
macro_rules! __preset_part {
    (Free, $base:ty; Free $($rest:ident)*) => {};
    (Pcp, $base:ty; Pcp $($rest:ident)*) => {};
    (Compact, $base:ty; Compact $($rest:ident)*) => {};
    (Walk, $base:ty; Walk $($rest:ident)*) => {};
    (Dirty, $base:ty; Dirty $($rest:ident)*) => {};
    (BulkFree, $base:ty; BulkFree $($rest:ident)*) => {};
    (Split, $base:ty; Split $($rest:ident)*) => {};
    (Trace, $base:ty; Trace $($rest:ident)*) => {};
    ($part:ident, $base:ty; $other:ident $($rest:ident)*) => {
        $crate::__preset_part!($part, $base; $($rest)*);
    };
    ($part:ident, $base:ty;) => {
        type $part = <$base as $crate::policy::Policy>::$part;
    };
}

//! A zone instance with what the preset's policies keep of it.

use super::walk::Walked;
use super::{Dirty, Policy, Walk};
use crate::boot::watermark::Watermarks;
use crate::platform::Platform;
use crate::types::units::{NodeId, ZoneId};
use crate::zone::tables::ZoneTables;
use crate::zone::{ZoneGuard, ZoneInstance, ZoneView};
use core::ops::{Deref, DerefMut};

/// A zone instance. The caller provides the memory for the allocator's zones, filled with
/// [`Zone::vacant`]; the allocator sets them up.
pub struct Zone<P: Platform, S: Policy> {
    instance: ZoneInstance<P, S::Free>,
    pub(crate) walk: <S::Walk as Walk>::Zone<P>,
    pub(crate) dirty: <S::Dirty as Dirty>::Zone<P>,
}

impl<P: Platform, S: Policy> Zone<P, S> {
    /// A zone with nothing in it.
    #[must_use]
    pub fn vacant() -> Self {
        Self {
            instance: ZoneInstance::vacant(),
            walk: S::Walk::new_zone::<P>(),
            dirty: S::Dirty::new_zone::<P>(),
        }
    }

    /// Beside its tables: where its free memory is asked for something.
    #[inline(always)]
    pub(crate) fn view<'a>(&'a self, table: &'a ZoneTables<'a, P>) -> ZoneView<'a, P, S::Free> {
        ZoneView { zone: &self.instance, table }
    }

    /// Runs `f` with the zone lock held and books the hold.
    #[inline]
    pub(crate) fn lock<R>(
        &self,
        table: &ZoneTables<'_, P>,
        f: impl FnOnce(&mut ZoneGuard<'_, P, S::Free>) -> R,
    ) -> R {
        self.view(table).lock(f)
    }

    pub(crate) fn set_watermarks(&self, marks: Watermarks) {
        self.instance.set_watermarks(marks);
        S::Walk::set_batch(&self.walk, marks.high.saturating_sub(marks.low));
        S::Walk::set_managed(&self.walk, self.instance.managed());
    }

    /// Whether the two are instances of one zone type of a node.
    pub(crate) fn is_sibling(&self, other: &Self) -> bool {
        self.instance.is_sibling(&other.instance)
    }
}

impl<P: Platform, S: Policy> Deref for Zone<P, S> {
    type Target = ZoneInstance<P, S::Free>;

    #[inline(always)]
    fn deref(&self) -> &ZoneInstance<P, S::Free> {
        &self.instance
    }
}

impl<P: Platform, S: Policy> DerefMut for Zone<P, S> {
    fn deref_mut(&mut self) -> &mut ZoneInstance<P, S::Free> {
        &mut self.instance
    }
}

impl<P: Platform, S: Policy> Walked<P, S::Walk> for Zone<P, S> {
    #[inline(always)]
    fn id(&self) -> ZoneId {
        self.id
    }
    #[inline(always)]
    fn node(&self) -> NodeId {
        self.node
    }
    #[inline(always)]
    fn walk(&self) -> &<S::Walk as Walk>::Zone<P> {
        &self.walk
    }
}

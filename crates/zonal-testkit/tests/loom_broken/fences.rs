//! Loom's platform without one of its fences.

use std::fmt;
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::{AtomicWord, FenceUnsupported, Platform};
use zonal::{CpuId, Host};
use zonal_testkit::loom_platform::{Byte, Half, LoomLock, LoomPlatform, Newest};

/// Loom's platform with its pair of fences, or one of them left out.
pub(crate) struct Fences<const LIGHT: bool, const HEAVY: bool, W = Newest>(LoomPlatform<W>);

impl<const LIGHT: bool, const HEAVY: bool, W: AtomicWord> Default for Fences<LIGHT, HEAVY, W> {
    fn default() -> Self {
        Self(LoomPlatform::new())
    }
}

impl<const LIGHT: bool, const HEAVY: bool, W> fmt::Debug for Fences<LIGHT, HEAVY, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fences")
    }
}

impl<const LIGHT: bool, const HEAVY: bool, W: AtomicWord> Platform for Fences<LIGHT, HEAVY, W> {
    type Byte = Byte;
    type Half = Half;
    type Word = W;
    type Lock<T: Send> = LoomLock<T>;
    type Slot<T: Send> = SharedSlot<T, LoomLock<Guarded<T>>>;

    fn cpu(&self) -> CpuId {
        self.0.cpu()
    }
    fn relax() {
        LoomPlatform::<W>::relax();
    }
    fn light_fence() {
        if LIGHT {
            LoomPlatform::<W>::light_fence();
        }
    }
    fn heavy_fence() -> Result<(), FenceUnsupported> {
        if HEAVY { LoomPlatform::<W>::heavy_fence() } else { Ok(()) }
    }
}

impl<const LIGHT: bool, const HEAVY: bool, W: AtomicWord> Host for Fences<LIGHT, HEAVY, W> {}

//! Hosts that tests can steer.
//!
//! ```
//! use zonal::platform::single::SingleThread;
//! use zonal_testkit::host::TestHost;
//! use zonal_testkit::shape::Shape;
//! let host = SingleThread::for_shape(Shape::Flat);
//! assert!(!host.switch_cpu(zonal::CpuId(1)), "it has one CPU");
//! ```

use crate::shape::Shape;
use zonal::platform::single::SingleThread;
use zonal::{CpuId, NodeId, Order, Pfn};

/// A platform that a test can build and, as far as it lets one, steer.
pub trait TestHost: zonal::Host {
    /// What the platform is called.
    const NAME: &'static str;

    /// The host of a machine of this shape.
    fn for_shape(shape: Shape) -> Self;

    /// Makes the calling thread run on `cpu`, if the host can be told to.
    fn switch_cpu(&self, cpu: CpuId) -> bool {
        let _ = cpu;
        false
    }

    /// Keeps a block that [`reclaim`](zonal::Host::reclaim) is to free when memory is short;
    /// `false` if the host does not do that.
    fn pledge(&self, pfn: Pfn, order: Order) -> bool {
        let _ = (pfn, order);
        false
    }

    /// The pledged blocks that were freed since the last call.
    fn redeemed(&self) -> Vec<(Pfn, Order)> {
        Vec::new()
    }

    /// The blocks that were filled with zero bytes since the last call; `None` if the host cannot do that.
    fn zeroed(&self) -> Option<Vec<(Pfn, Order)>> {
        None
    }

    /// What went wrong with locks and callbacks since the last call (I-7).
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// The node of a CPU, as the platform says.
    fn node_of_cpu(&self, cpu: CpuId) -> NodeId {
        self.node(cpu)
    }
}

impl TestHost for SingleThread {
    const NAME: &'static str = "SingleThread";

    fn for_shape(_: Shape) -> Self {
        Self
    }
}

/// Real threads on real CPUs; where they run is the system's choice.
#[cfg(all(target_os = "linux", not(loom)))]
impl TestHost for zonal_host::Threads {
    const NAME: &'static str = "Threads";

    fn for_shape(_: Shape) -> Self {
        Self::new()
    }
}

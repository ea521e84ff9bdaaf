//! Which schedulers are compared.
//!
//! ```
//! use zonal_iosched::scheduler::{Kind, Subject};
//!
//! let subject = Subject { target_ms: 600, ..Subject::new(Kind::Cfq) };
//! assert_eq!(subject.name(), "cfq, 600 ms");
//! ```

use clap::ValueEnum;
use zonal_cfq::cfq::{self, Cfq};
use zonal_cfq::deadline::{self, Deadline};
use zonal_cfq::noop::Noop;
use zonal_cfq::policy::Policy;
use zonal_cfq::units::Span;

/// A scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A queue for each process, with slices
    Cfq,
    /// By sector, unless a request is overdue
    Deadline,
    /// First come, first served
    Noop,
}

impl Kind {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cfq => "cfq",
            Self::Deadline => "deadline",
            Self::Noop => "noop",
        }
    }
}

/// A scheduler as it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Which.
    pub kind: Kind,
    /// CFQ's target latency in ms.
    pub target_ms: u64,
    /// CFQ's idle wait for a queue in ms.
    pub slice_idle_ms: u64,
    /// Whether the device has to seek.
    pub rotational: bool,
}

impl Subject {
    /// As Linux 3.16 sets it.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Self { kind, target_ms: 300, slice_idle_ms: 8, rotational: true }
    }

    /// Its name, with the target latency if it has one.
    #[must_use]
    pub fn name(&self) -> String {
        match self.kind {
            Kind::Cfq => format!("cfq, {} ms", self.target_ms),
            kind => kind.name().to_owned(),
        }
    }

    /// The scheduler, with nothing queued.
    #[must_use]
    pub fn policy(&self) -> Box<dyn Policy + Send> {
        match self.kind {
            Kind::Cfq => Box::new(Cfq::new(cfq::Tunables {
                target_latency: Span::from_millis(self.target_ms),
                slice_idle: Span::from_millis(self.slice_idle_ms),
                rotational: self.rotational,
                ..cfq::Tunables::default()
            })),
            Kind::Deadline => Box::new(Deadline::new(deadline::Tunables::default())),
            Kind::Noop => Box::new(Noop::default()),
        }
    }
}

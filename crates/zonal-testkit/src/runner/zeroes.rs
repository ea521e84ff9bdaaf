//! What a host filled with zero bytes for a request, beside what the request asked for and got.

use crate::checkers::{Checked, Violation};
use crate::model::Model;
use std::collections::BTreeSet;
use std::ops::Range;
use zonal::error::AllocReason;
use zonal::{Order, Pfn, Request};

/// The frames of a block.
pub(super) fn frames_of(pfn: Pfn, order: Order) -> Range<Pfn> {
    pfn..Pfn::new(pfn.get().saturating_add(order.frames()))
}

fn wrong(detail: String) -> Checked {
    Err(Violation { rule: "zero", detail })
}

/// The frames that were zeroed; `None`: the host cannot.
pub(super) struct Zeroes(Option<BTreeSet<u64>>);

impl Zeroes {
    pub(super) fn new(blocks: Option<Vec<(Pfn, Order)>>) -> Self {
        let frames = |(pfn, order): (Pfn, Order)| (pfn.get()..).take(order.frames() as usize);
        Self(blocks.map(|blocks| blocks.into_iter().flat_map(frames).collect()))
    }

    /// Whether what was served, which is not in the model yet, is zero if that was asked for, and nothing that is
    /// out is.
    pub(super) fn check_served(
        &self,
        model: &Model<'_>,
        request: &Request,
        served: &[Range<Pfn>],
    ) -> Checked {
        self.check_others(model)?;
        let Some(zeroed) = &self.0 else {
            return match request.is_zero() && !served.is_empty() {
                true => wrong(format!("{request:?} was served by a host that cannot")),
                false => Ok(()),
            };
        };
        if !request.is_zero() {
            return match zeroed.first() {
                Some(first) => wrong(format!("{request:?} had frame {first:#x} zeroed")),
                None => Ok(()),
            };
        }
        let mut frames = served.iter().flat_map(|part| part.start.get()..part.end.get());
        match frames.find(|frame| !zeroed.contains(frame)) {
            Some(frame) => wrong(format!("{request:?} got frame {frame:#x}, which is not zeroed")),
            None => Ok(()),
        }
    }

    /// Whether the reason is one, and nothing that is out is zeroed.
    pub(super) fn check_refused(&self, model: &Model<'_>, reason: AllocReason) -> Checked {
        self.check_others(model)?;
        match self.0 {
            Some(_) if reason == AllocReason::CannotZero => {
                wrong("a host that can zero was said not to".into())
            }
            _ => Ok(()),
        }
    }

    fn check_others(&self, model: &Model<'_>) -> Checked {
        let mut frames = self.0.iter().flatten();
        match frames.find(|&&frame| model.containing(Pfn::new(frame)).is_some()) {
            Some(frame) => wrong(format!("frame {frame:#x} is out, and was zeroed")),
            None => Ok(()),
        }
    }
}

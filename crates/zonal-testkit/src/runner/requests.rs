//! Requests, and what the model says of the answers.

use super::Runner;
use super::zeroes::{Zeroes, frames_of};
use crate::checkers::{Checked, Violation};
use crate::command::Ask;
use crate::host::TestHost;
use crate::model::Search;
use crate::snapshot::Snapshot;
use zonal::policy::Policy;
use zonal::{AllocError, Block, Pfn, Request};

impl<P: TestHost, S: Policy> Runner<'_, '_, P, S> {
    /// What the host filled with zero bytes since it was asked last.
    pub(super) fn zeroes(&self) -> Zeroes {
        Zeroes::new(self.world.allocator.platform().zeroed())
    }

    /// Allocates on the current CPU, by its handle if it has one.
    fn alloc_here(&mut self, request: &Request) -> Result<Block, AllocError> {
        match self.handle() {
            Some(handle) => handle.alloc(request),
            None => self.world.allocator.alloc(request),
        }
    }

    /// Whether it was served.
    pub(super) fn alloc(&mut self, ask: Ask) -> Result<bool, Violation> {
        let request = ask.request();
        let result = self.alloc_here(&request);
        self.note_redeemed();
        let zeroes = self.zeroes();
        match result {
            Ok(block) => {
                self.model.check_served(&request, self.node(), &block)?;
                let (pfn, order) = block.into_raw();
                zeroes.check_served(&self.model, &request, &[frames_of(pfn, order)])?;
                self.model.insert(pfn, order);
                Ok(true)
            }
            Err(error) => {
                zeroes.check_refused(&self.model, error.reason)?;
                let after = Snapshot::of(&self.world.allocator);
                let search = Search::of::<S>();
                self.model.check_refused(&request, self.node(), &error, &after, search)?;
                Ok(false)
            }
        }
    }

    /// That a refused bulk lost nothing is seen by the checkers after the step.
    pub(super) fn alloc_bulk(&mut self, ask: Ask, count: usize) -> Checked {
        let request = ask.request();
        let mut out = vec![Pfn::new(u64::MAX); count];
        let result = match self.handle() {
            Some(handle) => handle.alloc_bulk(&request, &mut out),
            None => self.world.allocator.alloc_bulk(&request, &mut out),
        };
        self.note_redeemed();
        let zeroes = self.zeroes();
        if let Err(error) = result {
            zeroes.check_refused(&self.model, error.reason)?;
            let after = Snapshot::of(&self.world.allocator);
            let (refused, search) = ((&error, count as u64), Search::of::<S>());
            return self.model.check_bulk_refused(&request, self.node(), refused, &after, search);
        }
        let served: Vec<_> = out.iter().map(|&pfn| frames_of(pfn, request.order())).collect();
        zeroes.check_served(&self.model, &request, &served)?;
        for pfn in out {
            self.model.check_served_raw(&request, self.node(), pfn)?;
            self.model.insert(pfn, request.order());
        }
        Ok(())
    }
}

//! Who has which block, kept beside the allocator: by name, because blocks are moved.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use zonal::plan::Plan;
use zonal::{Order, Pfn};
use zonal_testkit::checkers::Violation;
use zonal_testkit::model::Model;

/// A block that is out.
#[derive(Clone, Copy)]
struct Block {
    name: u64,
    order: Order,
    /// Whether the host may move it.
    movable: bool,
}

/// See the [module](self). Everything happens on one thread, and between two switches.
#[derive(Default)]
pub(crate) struct Ledger {
    blocks: RefCell<BTreeMap<Pfn, Block>>,
    places: RefCell<BTreeMap<u64, Pfn>>,
    names: Cell<u64>,
    violation: RefCell<Option<Violation>>,
    trace: Cell<u64>,
}

impl Ledger {
    /// Notes what went wrong; the first stays.
    pub(crate) fn fail(&self, rule: &'static str, detail: String) {
        self.violation.borrow_mut().get_or_insert(Violation { rule, detail });
    }

    /// The same for the result of a checker.
    pub(crate) fn check(&self, checked: Result<(), Violation>) {
        if let Err(violation) = checked {
            self.violation.borrow_mut().get_or_insert(violation);
        }
    }

    pub(crate) fn failed(&self) -> bool {
        self.violation.borrow().is_some()
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        self.violation.borrow().clone()
    }

    /// One more number in the hash of all that happened.
    pub(crate) fn trace(&self, number: u64) {
        let hash = (self.trace.get() ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.trace.set(hash.rotate_left(31));
    }

    pub(crate) fn hash(&self) -> u64 {
        self.trace.get()
    }

    /// A block was handed out (I-3). Returns its name.
    pub(crate) fn take(&self, pfn: Pfn, order: Order, movable: bool) -> u64 {
        self.clashes(pfn, order, "handed out");
        let name = self.names.get() + 1;
        self.names.set(name);
        self.blocks.borrow_mut().insert(pfn, Block { name, order, movable });
        self.places.borrow_mut().insert(name, pfn);
        self.trace(pfn.get() << 8 | u64::from(order.get()));
        name
    }

    /// Fails if a frame of the block is out.
    fn clashes(&self, pfn: Pfn, order: Order, what: &str) {
        let end = Pfn::new(pfn.get() + order.frames());
        let blocks = self.blocks.borrow();
        if let Some((other, block)) = blocks.range(..end).next_back()
            && other.get() + block.order.frames() > pfn.get()
        {
            let of = block.order;
            self.fail("I-3", format!("{pfn} (order {order}) {what}, but {other} ({of}) is out"));
        }
    }

    /// Its owner is about to free the block: where it is.
    pub(crate) fn leave(&self, name: u64) -> (Pfn, Order) {
        let pfn = self.places.borrow_mut().remove(&name).expect("a name is used once");
        let block = self.blocks.borrow_mut().remove(&pfn).expect("a block that is out");
        (pfn, block.order)
    }

    /// Where a block is. From now on it stays there until [`unpin`](Self::unpin).
    pub(crate) fn pin(&self, name: u64) -> (Pfn, Order, bool) {
        let pfn = self.places.borrow()[&name];
        let mut blocks = self.blocks.borrow_mut();
        let block = blocks.get_mut(&pfn).expect("a block that is out");
        (pfn, block.order, core::mem::replace(&mut block.movable, false))
    }

    pub(crate) fn unpin(&self, pfn: Pfn, movable: bool) {
        self.blocks.borrow_mut().get_mut(&pfn).expect("a block that is out").movable = movable;
    }

    /// The host moves a block, if it knows one there.
    pub(crate) fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> bool {
        let block = self.blocks.borrow().get(&from).copied();
        let Some(block) = block.filter(|block| block.movable && block.order == order) else {
            return false;
        };
        self.clashes(to, order, "given to move to");
        self.blocks.borrow_mut().remove(&from);
        self.blocks.borrow_mut().insert(to, block);
        self.places.borrow_mut().insert(block.name, to);
        self.trace(from.get() << 32 | to.get());
        true
    }

    /// All that is out, for the checkers.
    pub(crate) fn model<'p>(&self, plan: &'p Plan) -> Model<'p> {
        let mut model = Model::new(plan);
        self.blocks.borrow().iter().for_each(|(&pfn, block)| model.insert(pfn, block.order));
        model
    }
}

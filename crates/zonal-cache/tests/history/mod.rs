//! What may be read of a file that several threads write, cut and sync: every half of a page is a register, of which each
//! operation is known by the moments at which it began and ended.
//!
//! A value is wrong if another operation on the register certainly came between: it began after the one that
//! left the value had ended, and had ended before the look began. That is necessary for the operations to have
//! an order, at little cost, and says nothing of two that overlap.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Bytes of a register.
pub(crate) const HALF: usize = 2048;

#[derive(Clone, Debug)]
struct Operation {
    start: u64,
    /// `u64::MAX` until it has ended.
    end: u64,
    registers: Range<u64>,
    /// 0 for zeroes.
    version: u64,
}

/// What has been done to a file that was all zeroes, or empty.
#[derive(Default)]
pub(crate) struct History {
    clock: AtomicU64,
    operations: Mutex<Vec<Operation>>,
}

impl History {
    /// A moment; all others are earlier or later.
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst) + 1
    }

    fn begin(&self, registers: Range<u64>, version: u64) -> u64 {
        let start = self.now();
        let operation = Operation { start, end: u64::MAX, registers, version };
        self.operations.lock().expect("whole").push(operation);
        start
    }

    /// Ends what began at `start`; `done` is false if nothing came of it.
    fn end(&self, start: u64, done: bool) {
        let end = self.now();
        let mut operations = self.operations.lock().expect("whole");
        if done {
            let it = operations.iter_mut().find(|it| it.start == start).expect("it began");
            it.end = end;
        } else {
            operations.retain(|it| it.start != start);
        }
    }

    /// A write by `write`, which gets the bytes; whether it did it.
    pub(crate) fn write(&self, registers: Range<u64>, write: impl FnOnce(&[u8]) -> bool) {
        let version = self.now();
        let start = self.begin(registers.clone(), version);
        let bytes: Vec<u8> = registers.flat_map(|register| stamped(register, version)).collect();
        self.end(start, write(&bytes));
    }

    /// Zeroes by `cut`; whether it made them.
    pub(crate) fn cut(&self, registers: Range<u64>, cut: impl FnOnce() -> bool) {
        let start = self.begin(registers, 0);
        self.end(start, cut());
    }

    /// Whether the file may have had these bytes in a look that began at `since`. What is not there is zero.
    pub(crate) fn check(&self, what: &str, first: u64, count: u64, bytes: &[u8], since: u64) {
        let operations = self.operations.lock().expect("whole");
        for register in first..first + count {
            let at = (register - first) as usize * HALF;
            let bytes = bytes.get(at..).unwrap_or(&[]);
            let version = version(&bytes[..bytes.len().min(HALF)], register);
            let on = |it: &&Operation| it.registers.contains(&register);
            let over = |left: u64| {
                let mut others = operations.iter().filter(on);
                others.any(|it| it.start > left && it.end < since)
            };
            let mut left = operations.iter().filter(on).filter(|it| it.version == version);
            let initial = version == 0 && !over(0);
            assert!(
                initial || left.any(|it| !over(it.end)),
                "{what}: half {register} has version {version}, which is old"
            );
        }
    }
}

fn stamped(register: u64, version: u64) -> Vec<u8> {
    [register.to_le_bytes(), version.to_le_bytes()].concat().repeat(HALF / 16)
}

fn version(bytes: &[u8], register: u64) -> u64 {
    let Some(version) = bytes.get(8..16) else { return 0 };
    let version = u64::from_le_bytes(version.try_into().expect("eight"));
    let whole = if version == 0 { vec![0; HALF] } else { stamped(register, version) };
    assert!(bytes == &whole[..bytes.len()], "half {register} is torn, version {version}");
    version
}

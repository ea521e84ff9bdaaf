//! The file as it should be, and all that it was since it was last made to last.

/// The file as it should be.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) now: Vec<u8>,
    /// What it was since the last sync that went well.
    pub(super) was: Vec<Vec<u8>>,
}

pub(super) fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

impl Model {
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.now);
        self.was.push(self.now.clone());
    }

    pub(super) fn write(&mut self, at: usize, data: &[u8]) {
        self.change(|bytes| {
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
        });
    }

    /// Each byte that lasts is one that it was.
    pub(super) fn may_be(&self, durable: &[u8]) -> Result<(), String> {
        let longest = self.was.iter().map(Vec::len).max().unwrap_or(0).max(durable.len());
        if durable.len() > self.was.iter().map(Vec::len).max().unwrap_or(0) {
            return Err(format!("{} bytes last, which it never had", durable.len()));
        }
        let was_never = |&at: &usize| self.was.iter().all(|was| byte(was, at) != byte(durable, at));
        match (0..longest).find(was_never) {
            Some(at) => Err(format!("byte {at} lasts as {}", byte(durable, at))),
            None => Ok(()),
        }
    }
}

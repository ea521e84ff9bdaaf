//! Writing behind: dirty pages that no thread waits for.

use crate::file::FileCore;
use crate::host::Host;
use crate::inner::{Core, Setup};
use crate::writeback::{Purpose, dirty};
use alloc::sync::Arc;
use alloc::vec::Vec;
use zonal::platform::Lock;

impl<S: Setup> Core<S> {
    /// What is older than `age`, and what there is beyond the background limit.
    pub(crate) fn write_behind(&self, age: u64) {
        let files: Vec<Arc<FileCore<S>>> =
            self.files.with(|files| files.values().cloned().collect());
        if let Some(before) = self.host.now().checked_sub(age) {
            for file in files.iter().filter(|file| file.is_dirty()) {
                if let Some(_inside) = file.try_enter(self) {
                    file.write_range(self, (0, u64::MAX), before, Purpose::Behind);
                }
            }
        }
        self.write_beyond(&files);
        // What could not be written when the last handle went may be by now, by this thread or another.
        files.iter().for_each(|file| file.close_if_clean(self));
    }

    /// What there is beyond the background limit, of each file in turn.
    fn write_beyond(&self, files: &[Arc<FileCore<S>>]) {
        loop {
            let mut moved = false;
            for file in files.iter().filter(|file| file.is_dirty()) {
                let limit = self.bound_hint() * self.limits.background_percent / 100;
                if dirty(self) <= limit {
                    return;
                }
                moved |= file.write_some(self, 0).is_some_and(|pages| pages > 0);
            }
            // What is left is refused by its store, or another thread is at it.
            if !moved {
                return;
            }
        }
    }
}

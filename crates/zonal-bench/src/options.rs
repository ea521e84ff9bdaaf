//! What a workload can be told beside the number of threads and the memory.
//!
//! ```
//! use zonal_bench::options::Options;
//!
//! assert_eq!(Options::default().label(), None);
//! let options = Options { by_cpu: true, compact: true, ..Options::default() };
//! assert_eq!(options.label().as_deref(), Some("by-cpu, compacted"));
//! let options = Options { by_cpu: true, replace: 100, ..Options::default() };
//! assert_eq!(options.label().as_deref(), Some("by-cpu, 100 replaced"));
//! ```

use core::time::Duration;

/// The variant of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `fragment`: two threads fill in turns, then everything of one of them is freed.
    pub by_cpu: bool,
    /// `fragment`, by CPU: frames that are replaced, in random batches, before everything of one thread is
    /// freed.
    pub replace: u32,
    /// `fragment`: single frames are movable, and the zones are compacted before blocks are
    /// counted.
    pub compact: bool,
    /// `stress-highalloc`: the pause between two requests.
    pub delay: Option<Duration>,
}

impl Options {
    /// What rows of this variant say, if it is not the plain one.
    #[must_use]
    pub fn label(&self) -> Option<String> {
        let delay = self.delay.map(|delay| format!("delay {} ms", delay.as_millis()));
        let by_cpu = self.by_cpu.then(|| "by-cpu".to_owned());
        let replaced = (self.replace > 0).then(|| format!("{} replaced", self.replace));
        let compact = self.compact.then(|| "compacted".to_owned());
        let parts = [delay, by_cpu, replaced, compact];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

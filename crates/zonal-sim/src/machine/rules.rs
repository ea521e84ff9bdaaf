//! What a machine's values must be.

use super::{Cache, Clock, Cost, Kernel, Machine, Topology};
use core::fmt;
use core::ops::RangeInclusive;

/// Sockets a machine has at most.
pub const MAX_SOCKETS: u16 = 8;

/// Cores a machine has at most, all sockets together.
pub const MAX_CORES: u32 = 128;

/// Cycles of one cost. At least a few of the ticks that clocks count in, also on the core that runs
/// [`MAX_TURBO`] times as fast: where everything takes no time no CPU ever lets another go on. At most
/// far more than any work of one page, far less than a clock can count.
const CYCLES: RangeInclusive<f64> = 0.1..=1e9;

/// How many times the nominal frequency a turbo is at most.
const MAX_TURBO: f64 = 10.0;

/// Memory bandwidth of a socket, in GiB/s. At least so much that at any clock a line is served in the
/// 4096 cycles over which the use of the channels is averaged.
const BANDWIDTH: RangeInclusive<f64> = 0.2..=1e6;

/// A value that no machine can have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// The table of the machine file it is in, or `None` for those before the first table.
    pub table: Option<&'static str>,
    /// Its key there.
    pub key: &'static str,
    /// Which element, counted from 0, if the value is a list and one element is at fault.
    pub element: Option<usize>,
    /// What it is.
    pub found: String,
    /// What it must be: completes the sentence "must be ...".
    pub wanted: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(element) = self.element {
            write!(f, "element {} of ", element + 1)?;
        }
        write!(f, "{} is {}, but must be {}", self.key, self.found, self.wanted)
    }
}

impl core::error::Error for Violation {}

/// The values of one table, checked one after the other.
#[derive(Clone, Copy)]
struct Table(Option<&'static str>);

impl Table {
    fn violation(self, key: &'static str, found: String, wanted: impl Into<String>) -> Violation {
        Violation { table: self.0, key, element: None, found, wanted: wanted.into() }
    }

    fn count(
        self,
        key: &'static str,
        found: u32,
        wanted: RangeInclusive<u32>,
    ) -> Result<(), Violation> {
        if wanted.contains(&found) {
            return Ok(());
        }
        let wanted = format!("{} to {}", wanted.start(), wanted.end());
        Err(self.violation(key, found.to_string(), wanted))
    }

    /// Neither a NaN nor an infinity is within any bound.
    fn within(
        self,
        key: &'static str,
        found: f64,
        wanted: RangeInclusive<f64>,
    ) -> Result<(), Violation> {
        if wanted.contains(&found) {
            return Ok(());
        }
        let wanted = format!("{} to {}", wanted.start(), wanted.end());
        Err(self.violation(key, found.to_string(), wanted))
    }

    fn cycles<const N: usize>(self, costs: [(&'static str, f64); N]) -> Result<(), Violation> {
        costs.into_iter().try_for_each(|(key, cost)| self.within(key, cost, CYCLES))
    }
}

impl Machine {
    /// Whether its values are ones that a machine can have. A machine that was
    /// [parsed](Machine::parse) has passed.
    ///
    /// # Errors
    /// The first [`Violation`], in the order of a machine file.
    pub fn check(&self) -> Result<(), Violation> {
        check_name(&self.name)?;
        text("title", &self.title, "")?;
        text("source", &self.source, "\n\t")?;
        topology(&self.topology)?;
        clock(&self.clock, self.topology.cores_per_socket)?;
        cache(&self.cache)?;
        cost(&self.cost)?;
        kernel(&self.kernel)
    }
}

/// Whether a machine can be called that: a name is typed on command lines and becomes part of file
/// names.
///
/// # Errors
/// [`Violation`]: 1 to 64 of `a-z`, `0-9`, `_` and `-`, a letter or digit first.
///
/// ```
/// use zonal_sim::machine::check_name;
/// assert!(check_name("xeon_vm_2cpu").is_ok() && check_name("a machine").is_err());
/// ```
pub fn check_name(name: &str) -> Result<(), Violation> {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    let first = |c: char| known(c) && c != '_' && c != '-';
    if name.len() <= 64 && name.starts_with(first) && name.chars().all(known) {
        return Ok(());
    }
    let wanted = "1 to 64 of a-z, 0-9, _ and -, a letter or digit first";
    Err(Table(None).violation("name", format!("{name:?}"), wanted))
}

/// A text is printed as it is: of control characters, which a terminal would obey, only those of
/// `allowed` may be in it.
fn text(key: &'static str, text: &str, allowed: &str) -> Result<(), Violation> {
    if text.trim().is_empty() {
        return Err(Table(None).violation(key, "empty".to_owned(), "a text"));
    }
    // A line may end as on Windows.
    let text = text.replace("\r\n", "\n");
    let refused = |c: &char| c.is_control() && !allowed.contains(*c);
    let Some(control) = text.chars().find(refused) else { return Ok(()) };
    let but = if allowed.is_empty() { "" } else { " but newlines and tabs" };
    let wanted = format!("a text without control characters{but}");
    Err(Table(None).violation(key, format!("a text with {control:?}"), wanted))
}

fn topology(topology: &Topology) -> Result<(), Violation> {
    let table = Table(Some("topology"));
    table.count("sockets", topology.sockets.into(), 1..=MAX_SOCKETS.into())?;
    let most = MAX_CORES / u32::from(topology.sockets);
    if !(1..=most).contains(&topology.cores_per_socket.into()) {
        let wanted = format!(
            "1 to {most}: {} sockets, and at most {MAX_CORES} cores together",
            topology.sockets
        );
        let found = topology.cores_per_socket.to_string();
        return Err(table.violation("cores_per_socket", found, wanted));
    }
    table.count("threads_per_core", topology.threads_per_core.into(), 1..=2)?;
    table.within("memory_gib", topology.memory_gib, 0.0625..=65536.0)
}

fn clock(clock: &Clock, cores: u16) -> Result<(), Violation> {
    let table = Table(Some("clock"));
    let ghz = 0.1..=10.0;
    table.within("nominal_ghz", clock.nominal_ghz, ghz.clone())?;
    let turbo_ghz = *ghz.start()..=ghz.end().min(clock.nominal_ghz * MAX_TURBO);
    let entries = clock.turbo_ghz.len();
    if entries == 0 || entries > usize::from(cores) {
        let found = format!("a list of {entries}");
        let wanted = format!("a list of 1 to {cores}, one for each count of busy cores");
        return Err(table.violation("turbo_ghz", found, wanted));
    }
    for (element, &turbo) in clock.turbo_ghz.iter().enumerate() {
        table
            .within("turbo_ghz", turbo, turbo_ghz.clone())
            .map_err(|violation| Violation { element: Some(element), ..violation })?;
    }
    table.within("sibling_share", clock.sibling_share, 0.5..=1.0)
}

fn cache(cache: &Cache) -> Result<(), Violation> {
    let table = Table(Some("cache"));
    table.count("private_kib", cache.private_kib, 1..=1 << 20)?;
    table.count("shared_kib", cache.shared_kib, 1..=1 << 22)?;
    let bytes = cache.struct_page_bytes;
    if bytes == 0 || bytes > 1024 || !bytes.is_multiple_of(64) {
        let wanted = "a multiple of 64, 64 to 1024";
        return Err(table.violation("struct_page_bytes", bytes.to_string(), wanted));
    }
    Ok(())
}

fn cost(cost: &Cost) -> Result<(), Violation> {
    let table = Table(Some("cost"));
    table.cycles([
        ("private", cost.private),
        ("shared", cost.shared),
        ("near", cost.near),
        ("far", cost.far),
        ("memory", cost.memory),
        ("memory_far", cost.memory_far),
        ("streamed", cost.streamed),
        ("locked", cost.locked),
        ("access", cost.access),
        ("lock", cost.lock),
        ("irq_toggle", cost.irq_toggle),
        ("preempt_toggle", cost.preempt_toggle),
    ])?;
    table.within("bandwidth_gib_s", cost.bandwidth_gib_s, BANDWIDTH)
}

fn kernel(kernel: &Kernel) -> Result<(), Violation> {
    let table = Table(Some("kernel"));
    table.cycles([
        ("fault", kernel.fault),
        ("huge_fault", kernel.huge_fault),
        ("clear_page", kernel.clear_page),
        ("unmap_page", kernel.unmap_page),
        ("map_range", kernel.map_range),
        ("tlb_flush", kernel.tlb_flush),
        ("tlb_ipi", kernel.tlb_ipi),
    ])?;
    table.count("lru_batch", kernel.lru_batch, 1..=1024)?;
    table.cycles([
        ("lru_add", kernel.lru_add),
        ("lru_delete", kernel.lru_delete),
        ("truncate_page", kernel.truncate_page),
        ("move_page", kernel.move_page),
        ("space_lock", kernel.space_lock),
        ("wake", kernel.wake),
        ("compute", kernel.compute),
    ])?;
    table.within("spread", kernel.spread, 0.0..=1.0)
}

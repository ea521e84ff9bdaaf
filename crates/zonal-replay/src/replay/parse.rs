//! Reads the text of traces: `/sys/kernel/tracing/trace`, `trace-cmd report`, `perf script`, and
//! what `zonal record` writes.
//!
//! A line is `comm-pid [cpu] flags time: event: key=value ...`; comments, headers and the functions
//! of stack traces are stepped over. Of the events, `mm_page_alloc` and `mm_page_free` are done
//! again; the others of the allocator come with them, and what other tracers print is counted. Both
//! spellings of a pfn (decimal, hexadecimal) and of the flags (with and without underscores) are
//! read.
//!
//! ```
//! use zonal_replay::replay::parse::{Item, line};
//! let text = "  cc1-812   [003] .....   41.205: mm_page_free: page=ffffea0000048d00 pfn=0x1234 order=0";
//! assert!(matches!(line(text), Ok(Item::Free { cpu: 3, pfn: 0x1234, .. })));
//! assert!(line("what is this?").is_err());
//! ```

use core::fmt;

use zonal::policy::trace::{Gfp, Point};
use zonal::{MigrateType, Order, Request};
use zonal_trace::gfp;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A block was allocated.
    Alloc {
        /// On this CPU.
        cpu: u32,
        /// Its first frame.
        pfn: u64,
        /// What was asked for.
        request: Request,
        /// Flags that have no meaning here.
        unknown_flags: u32,
    },
    /// A block was freed.
    Free {
        /// On this CPU.
        cpu: u32,
        /// Its first frame.
        pfn: u64,
        /// Its order.
        order: Order,
    },
    /// An allocation failed.
    Failed,
    /// Another event of the allocator, which is not done again.
    Accompanying,
    /// An event of something else.
    Unknown,
    /// How many events the tracer lost (0: it did not say; [`u64::MAX`]: that many or more).
    Lost(u64),
    /// No event at all: a comment, a header.
    Nothing,
}

/// Why a line cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// There is no `[cpu]`.
    NoCpu,
    /// There is no `seconds.fraction:` after the CPU.
    NoTime,
    /// There is no `event:` after the time, nor what other tracers have there.
    NoEvent,
    /// An argument is missing.
    Missing(&'static str),
    /// An argument is no number.
    NotANumber(&'static str),
    /// The order is above 10.
    Order(u64),
    /// The migrate type is none that a request can have.
    MigrateType(u64),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu => f.write_str("there is no CPU in brackets, as in `[003]`"),
            Self::NoTime => f.write_str("there is no time after the CPU, as in `12.345678:`"),
            Self::NoEvent => f.write_str("there is no event after the time, as in `mm_page_free:`"),
            Self::Missing(key) => write!(f, "`{key}=` is missing"),
            Self::NotANumber(key) => write!(f, "`{key}=` is not followed by a number"),
            Self::Order(order) => write!(f, "order={order}: the largest order is 10"),
            Self::MigrateType(number) => {
                write!(f, "migratetype={number}: a request has 0, 1 or 2")
            }
        }
    }
}

/// Reads one line.
///
/// # Errors
///
/// Why it cannot be read.
pub fn line(text: &str) -> Result<Item, Reason> {
    let text = text.trim();
    if is_header(text) {
        return Ok(lost(text).map_or(Item::Nothing, Item::Lost));
    }
    let (cpu, rest) = cpu(text).ok_or(Reason::NoCpu)?;
    let mut words = rest.split_whitespace();
    words.find(|word| is_time(word)).ok_or(Reason::NoTime)?;
    let word = words.next().ok_or(Reason::NoEvent)?;
    let Some(event) = word.strip_suffix(':') else {
        return nameless(word, words).ok_or(Reason::NoEvent);
    };
    // perf puts the subsystem before it: `kmem:mm_page_alloc:`.
    let name = event.rsplit(':').next().unwrap_or(event);
    let arguments = Arguments(rest);
    match Point::from_name(name) {
        Some(Point::Alloc) => alloc(cpu, arguments),
        Some(Point::Free) => free(cpu, arguments),
        // The name it had before Linux 3.3.
        None if name == "mm_page_free_direct" => free(cpu, arguments),
        Some(_) => Ok(Item::Accompanying),
        None => Ok(Item::Unknown),
    }
}

/// What is no `event:`, though tracers print it: the ends of system calls (`sys_read -> 0x20`), calls
/// (`sys_getpid()`, `do_x <-do_y`), `<stack trace>`, and perf's own records.
fn nameless<'a>(first: &str, mut rest: impl Iterator<Item = &'a str>) -> Option<Item> {
    let second = rest.next().unwrap_or_default();
    if first == "PERF_RECORD_LOST" && second == "lost" {
        return Some(Item::Lost(rest.next().map_or(0, count)));
    }
    let is_call = first.contains('(') || second == "->" || second.starts_with("<-");
    let is_other = is_call || first.starts_with('<') || first.starts_with("PERF_RECORD_");
    is_other.then_some(Item::Unknown)
}

fn alloc(cpu: u32, arguments: Arguments<'_>) -> Result<Item, Reason> {
    let order = arguments.order()?;
    let page = arguments.text("page");
    // As the kernel, and as `trace-cmd` and `perf` print a null pointer.
    if matches!(page, Some("(null)" | "(nil)")) {
        return Ok(Item::Failed);
    }
    let pfn = arguments.number("pfn")?;
    // Where pointers are printed hashed, a null one may be too; Linux never hands out frame 0.
    if pfn == 0 && page != Some(FRAME_0) {
        return Ok(Item::Failed);
    }
    let (mut gfp, mut unknown_flags) = (Gfp::default(), 0);
    let flags = arguments.text("gfp_flags");
    for name in flags.into_iter().flat_map(|flags| flags.split('|')) {
        match gfp::from_name(name) {
            Some(mask) => gfp = gfp.with(mask),
            None => unknown_flags += 1,
        }
    }
    let mut request = gfp.request(order);
    match (flags, arguments.text("migratetype")) {
        (None, None) => return Err(Reason::Missing("gfp_flags")),
        (None, Some(_)) => {
            let number = arguments.number("migratetype")?;
            let migrate = u8::try_from(number).ok().and_then(MigrateType::from_number);
            let migrate = migrate.filter(|migrate| migrate.is_requestable());
            request = Request::new(order).migrate(migrate.ok_or(Reason::MigrateType(number))?);
        }
        // The flags say it already, and its numbers changed in Linux 4.4.
        (Some(_), _) => {}
    }
    Ok(Item::Alloc { cpu, pfn, request, unknown_flags })
}

/// The page of frame 0 as `zonal record` prints it: zonal hands that frame out where a map has it.
const FRAME_0: &str = "ffffea0000000000";

fn free(cpu: u32, arguments: Arguments<'_>) -> Result<Item, Reason> {
    Ok(Item::Free { cpu, pfn: arguments.number("pfn")?, order: arguments.order()? })
}

/// The `key=value` words of a line.
#[derive(Clone, Copy)]
struct Arguments<'a>(&'a str);

impl<'a> Arguments<'a> {
    /// What stands after `key=`. A pointer that is null is printed with spaces in front.
    fn text(self, key: &str) -> Option<&'a str> {
        let mut words = self.0.split_whitespace();
        let value = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
        if value.is_empty() { words.next() } else { Some(value) }
    }

    fn number(self, key: &'static str) -> Result<u64, Reason> {
        let text = self.text(key).ok_or(Reason::Missing(key))?;
        let number = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        number.map_err(|_| Reason::NotANumber(key))
    }

    fn order(self) -> Result<Order, Reason> {
        let number = self.number("order")?;
        u8::try_from(number).ok().and_then(Order::new).ok_or(Reason::Order(number))
    }
}

/// The number in the first brackets that have nothing else in them, and what follows.
fn cpu(text: &str) -> Option<(u32, &str)> {
    text.match_indices('[').find_map(|(at, _)| {
        let (number, rest) = text[at + 1..].split_once(']')?;
        let digits = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
        Some((number.parse().ok().filter(|_| digits)?, rest))
    })
}

/// `seconds.fraction:`, or a count of ticks.
fn is_time(word: &str) -> bool {
    let Some(number) = word.strip_suffix(':') else { return false };
    let digit = |it: u8| it.is_ascii_digit() || it == b'.';
    number.bytes().all(digit) && number.starts_with(|it: char| it.is_ascii_digit())
}

/// What tracers say about a trace as a whole.
fn is_header(text: &str) -> bool {
    let starts = ["#", "cpus=", "version ="];
    let plain = text.is_empty() || starts.iter().any(|start| text.starts_with(start));
    // `CPU 3 is empty`, and `=> do_x` of a stack trace; but a thread may be called `CPU 0/KVM`.
    let may_be = ["CPU", "=> "].iter().any(|start| text.starts_with(start));
    plain || (may_be && cpu(text).is_none())
}

/// `CPU:1 [LOST 7 EVENTS]`, as the kernel and `zonal record` say it, `CPU:1 [7 EVENTS DROPPED]` and
/// `CPU:1 [EVENTS DROPPED]`, as trace-cmd does.
fn lost(text: &str) -> Option<u64> {
    let (_, said) = text.strip_prefix("CPU:")?.split_once('[')?;
    let is_dropped = said.contains("EVENTS DROPPED");
    let said = said.strip_prefix("LOST").or_else(|| is_dropped.then_some(said))?;
    said.split_whitespace().next().map(count)
}

/// How many that is; 0 if it is no number.
fn count(word: &str) -> u64 {
    let is_number = word.bytes().all(|it| it.is_ascii_digit());
    // A number that cannot be read is too large.
    if is_number { word.parse().unwrap_or(u64::MAX) } else { 0 }
}

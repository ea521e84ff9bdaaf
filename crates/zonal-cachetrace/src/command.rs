//! The command: reads the trace, asks the policies, prints.
//!
//! ```
//! use clap::Parser;
//! use zonal_cachetrace::{Cli, Command};
//! let line = ["zonal", "cachetrace", "trace.csv", "--page", "64K", "--policies", "mglru,opt"];
//! let Command::Cachetrace(args) = Cli::try_parse_from(line)?.command;
//! assert_eq!((args.page, args.policies.len()), (65536, 2));
//! # Ok::<(), clap::Error>(())
//! ```

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use zonal_cli::bar::Bar;
use zonal_cli::interrupt;
use zonal_cli::size::{human, parse_size};
use zonal_cli::terminal;

use crate::error::CacheTraceError;
use crate::read::load;
use crate::show::{Row, chart, table};
use crate::simulate::{Policy, Trace, hits};
use crate::trace::Format;

/// What to ask of which trace.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// The trace
    pub file: PathBuf,
    /// How it is written [default: text, as its first request looks]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Sizes of the cache, such as 1M,64M [default: six, from 1/64 to 1/2 of what it touches]
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    pub sizes: Vec<usize>,
    /// Policies [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    pub policies: Vec<Policy>,
    /// Bytes of a page
    #[arg(long, default_value = "4K", value_parser = parse_page)]
    pub page: usize,
    /// Take requests for objects, as large as they are, and not apart into pages
    #[arg(long, conflicts_with = "page")]
    pub whole: bool,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

fn parse_page(text: &str) -> Result<usize, String> {
    let page = parse_size(text)?;
    let whole = page.is_power_of_two() && (512..=1 << 30).contains(&page);
    whole.then_some(page).ok_or_else(|| format!("`{text}` is no power of two from 512 to 1G"))
}

/// Sizes in bytes; `all` is what the trace touches.
fn sizes(args: &TraceArgs, all: u64, least: u64) -> Vec<u64> {
    if args.sizes.is_empty() {
        let mut sizes: Vec<u64> = (1..=6)
            .rev()
            .map(|part| (all >> part) / least * least)
            .map(|size| size.max(least))
            .collect();
        sizes.dedup();
        return sizes;
    }
    args.sizes.iter().map(|&size| (size as u64 / least * least).max(least)).collect()
}

/// Bytes of all objects. A trace may say of few that they are more than there can be.
fn total(trace: Trace<'_>) -> u64 {
    trace.sizes.iter().fold(0, |all, &size| all.saturating_add(size))
}

/// What of the trace is said first.
fn describe(trace: Trace<'_>, format: Format, requests: u64, page: u64) -> String {
    let name = clap::ValueEnum::to_possible_value(&format);
    let name = name.map_or_else(String::new, |name| name.get_name().to_owned());
    let (count, unique) = (trace.accesses.len(), trace.unique);
    if trace.sizes.is_empty() {
        let (of, all) = (human(page), human(unique as u64 * page));
        format!(
            "{requests} requests ({name}), {count} pages of {of}, {unique} of them different ({all})"
        )
    } else {
        let all = human(total(trace));
        format!("{requests} requests ({name}), {unique} different objects ({all})")
    }
}

/// Runs the command.
///
/// # Errors
/// [`CacheTraceError`] says what of the trace cannot be read; after Ctrl-C, when the sizes that were
/// done are printed, that it came.
pub fn run(args: &TraceArgs, out: &mut dyn Write) -> Result<(), CacheTraceError> {
    let page = (!args.whole).then_some(args.page as u64);
    let loaded = load(&args.file, args.format, page, |all| Bar::new(all, args.no_progress))?;
    let policies = if args.policies.is_empty() { &Policy::ALL[..] } else { &args.policies };
    let trace = loaded.accesses.trace();
    // Bytes of what the simulation counts as 1.
    let unit = page.unwrap_or(1);
    let has = describe(trace, loaded.format, loaded.requests, unit);
    writeln!(out, "{}:\n{}\n", args.file.display(), terminal::fold(&has))?;
    let (mut rows, mut done) = (Vec::new(), 0);
    let all = if args.whole { total(trace) } else { trace.unique as u64 * unit };
    let sizes = sizes(args, all, unit);
    let runs = (sizes.len() * policies.len()) as u64;
    let bar = Bar::new(runs, args.no_progress);
    for bytes in sizes {
        let asked = policies.iter().map(|&policy| {
            bar.at(done, runs, &format!("{policy} in {}", human(bytes)));
            done += 1;
            let hits = || hits(policy, trace, bytes / unit) as f64 / trace.accesses.len() as f64;
            (!interrupt::is_requested()).then(hits)
        });
        // After Ctrl-C the sizes before are shown.
        let Some(ratios) = asked.collect() else { break };
        rows.push(Row { bytes, ratios });
    }
    drop(bar);
    if !rows.is_empty() {
        writeln!(out, "{}\n\n{}", table(policies, &rows), chart(policies, &rows))?;
    }
    Ok(interrupt::outcome()?)
}

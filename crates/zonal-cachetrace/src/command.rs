//! The command: reads the trace, asks the policies, prints.
//!
//! ```
//! use zonal_cachetrace::command::Pages;
//! use zonal_cachetrace::trace::{Format, Request};
//! let mut pages = Pages::default();
//! pages.add(Request { file: 0, offset: 0, bytes: 10_000 }, 4096);
//! pages.add(Request { file: 0, offset: 4096, bytes: 1 }, 4096);
//! assert_eq!(pages.accesses(), [0, 1, 2, 1]);
//! assert_eq!(pages.unique(), 3);
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

use clap::Args;
use zonal_cli::bar::Bar;
use zonal_cli::error::LabError;
use zonal_cli::interrupt;
use zonal_cli::size::{human, parse_size};
use zonal_cli::terminal;

use crate::error::CacheTraceError;
use crate::show::{Row, chart, table};
use crate::simulate::{Policy, hits};
use crate::trace::{Format, LineError, Request};

/// Accesses to pages that a trace may have.
const MOST: usize = 1 << 30;
/// Lines between two looks at the bar.
const LINES: usize = 1 << 14;

/// What to ask of which trace.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// The trace: a text with a request a line
    pub file: PathBuf,
    /// How it is written [default: as its first request looks]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Sizes of the cache, such as 1M,64M [default: six, from 1/64 to 1/2 of the pages it touches]
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    pub sizes: Vec<usize>,
    /// Policies [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    pub policies: Vec<Policy>,
    /// Bytes of a page
    #[arg(long, default_value = "4K", value_parser = parse_page)]
    pub page: usize,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

fn parse_page(text: &str) -> Result<usize, String> {
    let page = parse_size(text)?;
    let whole = page.is_power_of_two() && (512..=1 << 30).contains(&page);
    whole.then_some(page).ok_or_else(|| format!("`{text}` is no power of two from 512 to 1G"))
}

/// The pages of a trace, in the order in which they were asked for, numbered as they came.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    numbers: HashMap<(u64, u64), u32>,
    accesses: Vec<u32>,
}

impl Pages {
    /// Adds those of a request, with pages of `page` bytes.
    pub fn add(&mut self, request: Request, page: u64) {
        for index in request.pages(page) {
            let new = self.numbers.len() as u32;
            let number = *self.numbers.entry((request.file, index)).or_insert(new);
            self.accesses.push(number);
        }
    }

    /// The numbers.
    #[must_use]
    pub fn accesses(&self) -> &[u32] {
        &self.accesses
    }

    /// How many different ones there are.
    #[must_use]
    pub fn unique(&self) -> usize {
        self.numbers.len()
    }
}

/// Reads a trace; its format, how many requests it has, and their pages.
fn read(args: &TraceArgs) -> Result<(Format, u64, Pages), CacheTraceError> {
    let path = || args.file.clone();
    let unreadable = |source| CacheTraceError::Unreadable { path: path(), source };
    let file = File::open(&args.file).map_err(unreadable)?;
    // 0 of what is no file: then there is no more to show than that it is read.
    let (all, mut bytes) = (file.metadata().map_or(0, |it| it.len()), 0);
    let bar = Bar::new(all, args.no_progress);
    let (mut format, mut count, mut pages) = (args.format, 0, Pages::default());
    let mut number = 0;
    for line in BufReader::new(file).lines() {
        let line = line.map_err(unreadable)?;
        number += 1;
        bytes += line.len() as u64 + 1;
        if number % LINES == 0 {
            bar.at(bytes, all, "reading");
        }
        if interrupt::is_requested() {
            return Err(LabError::Interrupted.into());
        }
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |source| CacheTraceError::Line { path: path(), number, source };
        let Some(known) = format.or_else(|| Format::guess(&line)) else {
            // The head of a table, or of a log.
            if number < 10 {
                continue;
            }
            return Err(wrong(LineError::Unknown));
        };
        let parsed = known.parse(&line);
        // The head of a table whose format was named.
        if parsed.is_err() && count == 0 && number == 1 {
            continue;
        }
        format = Some(known);
        if let Some(request) = parsed.map_err(wrong)? {
            count += 1;
            let page = if known.counts_pages() { 1 } else { args.page as u64 };
            let more = request.pages(page).end - request.pages(page).start;
            if pages.accesses.len() as u64 + more > MOST as u64 {
                return Err(CacheTraceError::TooLong { path: path(), most: MOST });
            }
            pages.add(request, page);
        }
    }
    match format {
        Some(format) if pages.unique() > 0 => Ok((format, count, pages)),
        _ => Err(CacheTraceError::Empty { path: path() }),
    }
}

/// Sizes in pages.
fn sizes(args: &TraceArgs, unique: usize) -> Vec<usize> {
    if args.sizes.is_empty() {
        let mut sizes: Vec<usize> = (1..=6).rev().map(|part| (unique >> part).max(1)).collect();
        sizes.dedup();
        return sizes;
    }
    args.sizes.iter().map(|size| (size / args.page).max(1)).collect()
}

/// Runs the command.
///
/// # Errors
/// [`CacheTraceError`] says what of the trace cannot be read; after Ctrl-C, when the sizes that were
/// done are printed, that it came.
pub fn run(args: &TraceArgs, out: &mut dyn Write) -> Result<(), CacheTraceError> {
    let (format, requests, pages) = read(args)?;
    let all = [Policy::Lru, Policy::S3Fifo, Policy::Sieve, Policy::Opt];
    let policies = if args.policies.is_empty() { &all[..] } else { &args.policies };
    let (accesses, unique) = (pages.accesses(), pages.unique());
    let name = clap::ValueEnum::to_possible_value(&format);
    let name = name.map_or_else(String::new, |name| name.get_name().to_owned());
    let bytes = |pages: usize| pages as u64 * args.page as u64;
    let has = format!(
        "{requests} requests ({name}), {} pages of {}, {unique} of them different ({})",
        accesses.len(),
        human(args.page as u64),
        human(bytes(unique)),
    );
    writeln!(out, "{}:\n{}\n", args.file.display(), terminal::fold(&has))?;
    let (mut rows, mut done) = (Vec::new(), 0);
    let sizes = sizes(args, unique);
    let runs = (sizes.len() * policies.len()) as u64;
    let bar = Bar::new(runs, args.no_progress);
    for slots in sizes {
        let asked = policies.iter().map(|&policy| {
            bar.at(done, runs, &format!("{policy} in {}", human(bytes(slots))));
            done += 1;
            let hits = || hits(policy, accesses, unique, slots) as f64 / accesses.len() as f64;
            (!interrupt::is_requested()).then(hits)
        });
        // After Ctrl-C the sizes before are shown.
        let Some(ratios) = asked.collect() else { break };
        rows.push(Row { bytes: bytes(slots), ratios });
    }
    drop(bar);
    if !rows.is_empty() {
        writeln!(out, "{}\n\n{}", table(policies, &rows), chart(policies, &rows))?;
    }
    Ok(interrupt::outcome()?)
}

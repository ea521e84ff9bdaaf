//! Prints a trace of 300,000 reads, a page a line, the same every time:
//!
//! | | |
//! |---|---|
//! | `zipf` | Zipf (0.9) over 20,000 pages |
//! | `scan` | 9 of 10 as before, 1 of 10 goes on through pages that never come again |
//! | `loop` | 20,000 pages in their order, again and again |
//!
//! ```text
//! cargo run --release -p zonal-cachetrace --example mix -- scan > mix.txt
//! cargo run --release -- cachetrace mix.txt
//! ```

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

const PAGES: usize = 20_000;
const READS: u64 = 300_000;

/// How many of ten reads are of the scan; `None` for a loop.
fn kind(name: &str) -> Option<Option<u64>> {
    match name {
        "zipf" => Some(Some(0)),
        "scan" => Some(Some(1)),
        "loop" => Some(None),
        _ => None,
    }
}

fn print(scanned: Option<u64>) -> io::Result<()> {
    let mut sums: Vec<f64> = Vec::with_capacity(PAGES);
    for rank in 1..=PAGES {
        let weight = (rank as f64).powf(-0.9);
        sums.push(sums.last().copied().unwrap_or(0.0) + weight);
    }
    let all = sums[PAGES - 1];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut out = BufWriter::new(io::stdout().lock());
    for at in 0..READS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let page = match scanned {
            None => at as usize % PAGES,
            Some(scanned) if at % 10 < scanned => PAGES + (at / 10) as usize,
            Some(_) => {
                let point = state as f64 / u64::MAX as f64 * all;
                sums.partition_point(|&sum| sum < point).min(PAGES - 1)
            }
        };
        writeln!(out, "{page}")?;
    }
    out.flush()
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1);
    let Some(scanned) = name.as_deref().and_then(kind) else {
        eprintln!("usage: mix zipf|scan|loop");
        return ExitCode::from(2);
    };
    match print(scanned) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

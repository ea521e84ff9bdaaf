//! Prints a trace, a page a line: 9 of 10 reads follow Zipf (0.9) over 20,000 pages, 1 of 10 goes on through pages
//! that never come again. The same every time.
//!
//! ```text
//! cargo run --release -p zonal-cachetrace --example mix > mix.txt
//! cargo run --release -- cachetrace mix.txt
//! ```

use std::io::{self, BufWriter, Write};

const PAGES: usize = 20_000;
const READS: u64 = 300_000;

fn main() -> io::Result<()> {
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
        let page = if at % 10 == 0 {
            PAGES + (at / 10) as usize
        } else {
            let point = state as f64 / u64::MAX as f64 * all;
            sums.partition_point(|&sum| sum < point).min(PAGES - 1)
        };
        writeln!(out, "{page}")?;
    }
    out.flush()
}

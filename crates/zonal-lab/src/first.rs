//! The first run: what `zonal` shows without arguments.

use std::io::Write;

use zonal::preset::Zonal;
use zonal_bench::args::{BenchArgs, PathArg};
use zonal_bench::program::Quick;
use zonal_bench::subjects::zonal::{Owned, Preset, Shared};
use zonal_bench::subjects::{self, Entry};
use zonal_bench::workload::Workload;
use zonal_bench::{bench, child};
use zonal_cli::error::LabError;

/// The peers that a newcomer sees zonal beside: the fastest two on one thread, and the one that
/// is fastest on two. `zonal bench page-fault1` shows all.
const PEERS: [&str; 3] = ["bitmap-allocator", "buddy-slab-allocator", "frame-alloc"];

/// What to do next, and what that shows.
const NEXT: [(&str, &str); 3] = [
    ("bench page-fault1", "all presets and peers"),
    ("sim --list", "simulated machines"),
    ("help", "every command"),
];

/// What this program can measure itself.
pub(crate) fn entries() -> Vec<Entry> {
    let mut entries = vec![
        Entry::of::<Preset<Zonal, Owned>, Quick>(),
        Entry::of::<Preset<Zonal, Shared>, Quick>(),
    ];
    entries.extend(zonal_peers::entries::<Quick>());
    entries.extend(subjects::references::<Quick>());
    entries
}

fn args() -> BenchArgs {
    BenchArgs {
        workload: Workload::PageFault1.name().into(),
        threads: Vec::new(),
        memory: 4 << 30,
        overcommit: true,
        preset: Vec::new(),
        subjects: ["Zonal"].into_iter().chain(PEERS).map(Into::into).collect(),
        path: PathArg::All,
        duration: None,
        samples: 15,
        seed: 1,
        touch: false,
        by_cpu: false,
        replace: 0,
        compact: false,
        delay_ms: Vec::new(),
        highalloc_memory: None,
        json: false,
        csv: None,
        out: None,
        no_progress: false,
    }
}

/// Runs `page-fault1` on one thread and on all CPUs, zonal beside its fastest peers.
///
/// # Errors
///
/// [`LabError`].
pub(crate) fn run(out: &mut dyn Write) -> Result<(), LabError> {
    bench::first(&args(), &child::peers(entries()), out)?;
    let zonal = program();
    writeln!(out, "\nNext:")?;
    for (line, what) in NEXT {
        writeln!(out, "  {:<54} {what}", format!("{zonal} {line}"))?;
    }
    Ok(())
}

/// What a person types to run this program.
fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run --release --" } else { "zonal" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_bench::plan;

    #[test]
    fn this_program_has_what_the_first_run_shows() {
        plan::check(&args()).expect("names that exist");
        assert!(plan::is_within(&args(), &entries()));
    }
}

//! What it costs to choose a zone: for each walk and dirty policy, on one node and on four, the
//! instructions of an allocation with its free, and the cache lines of an allocation.

use crate::golden;
use crate::tools;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use xshell::{Shell, cmd};

/// Prints a table, or with `json` an object a line.
pub(crate) fn run(shell: &Shell, json: bool) -> Result<()> {
    tools::require(shell, "valgrind")?;
    let binary = golden::build(shell)?;
    let text = cmd!(shell, "{binary} lines").quiet().read()?;
    let mut lines = BTreeMap::new();
    for line in text.lines() {
        let (case, count) = line.split_once(' ').with_context(|| format!("`{line}`"))?;
        let count: f64 = count.parse().with_context(|| format!("`{line}`"))?;
        lines.insert(case.to_owned(), count);
    }
    let instructions = golden::count_some(shell, &binary, |case| lines.contains_key(case))?;
    let origin = if json { origin(shell) } else { Value::Null };
    if !json {
        println!("{:<28} {:>12} {:>6}", "a page allocated and freed", "instructions", "lines");
    }
    for (case, instructions) in instructions {
        let lines = lines.get(&case).with_context(|| format!("{case} has no lines"))?;
        if json {
            let [preset, machine, workload] = case.split('/').collect::<Vec<_>>()[..] else {
                anyhow::bail!("`{case}` is no PRESET/MACHINE/WORKLOAD");
            };
            let mut row = json!({
                "preset": preset,
                "machine": machine,
                "workload": workload,
                "instructions": instructions,
                "lines": lines,
            });
            if let (Value::Object(row), Value::Object(origin)) = (&mut row, &origin) {
                row.extend(origin.clone());
            }
            println!("{row}");
        } else {
            println!("{case:<28} {instructions:>12.2} {lines:>6.2}");
        }
    }
    Ok(())
}

/// Where and of what the counts are, as the rows of the lab say it.
fn origin(shell: &Shell) -> Value {
    let said = |run: xshell::Cmd<'_>| run.quiet().ignore_stderr().read().ok();
    let host = shell.read_file("/proc/sys/kernel/hostname").unwrap_or_default();
    json!({
        "host": host.trim(),
        "date": said(cmd!(shell, "date -u +%Y-%m-%dT%H:%M:%SZ")),
        "version": env!("CARGO_PKG_VERSION"),
        "commit": said(cmd!(shell, "git rev-parse HEAD")),
    })
}

//! That the cold paths are as flat as ARCHITECTURE.md says: `cargo xtask paths`.
//!
//! The document lists, in blocks that start with ```` ```text path=NAME ````, the functions from a
//! public method down to a zone's free memory, a line each: function, file, and what one likes to
//! say about it. `miss` is an allocation that the caches cannot serve, `free` a free that no cache takes.
//!
//! The list is compared with the source ([`calls`]) and with what happens: `zonal-golden stacks`,
//! built without optimisation, prints the stack at every access to the core's memory. What is
//! listed must be the longest way to a write in the room `zone`. Functions of the rooms on the
//! ground (`frame`, `platform`, `types`) and closures do not stand in it. *Brackets* stand in it and
//! do not count: functions that only run a closure of their caller, within the walk over the zones,
//! the CPU's slot or the zone lock.

mod calls;
#[cfg(test)]
mod tests;

use crate::rooms::ROOT;
use crate::steps::target_dir;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fmt;
use xshell::{Shell, cmd};

const DOCUMENT: &str = "ARCHITECTURE.md";
const FENCE: &str = "```text path=";
/// Where the free memory is.
const GOAL: &str = "zone/";
const GROUND: [&str; 3] = ["frame/", "platform/", "types/"];

/// Functions that only run a closure of their caller. That they take one is checked.
const BRACKETS: [(&str, &str); 4] = [
    ("find", "policy/walk/mod.rs"),
    ("enter_at", "alloc/entry.rs"),
    ("try_with", "pcp/per_cpu_pages.rs"),
    ("lock", "zone/guard.rs"),
];

/// A path that is listed, and how long it may be.
struct Limit {
    name: &'static str,
    functions: usize,
    files: usize,
}

const LIMITS: [Limit; 2] = [
    Limit { name: "miss", functions: 9, files: 7 },
    Limit { name: "free", functions: 6, files: 5 },
];

/// A function of the core, and its file below the source directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Function {
    name: String,
    file: String,
}

impl Function {
    fn is_bracket(&self) -> bool {
        BRACKETS.contains(&(self.name.as_str(), self.file.as_str()))
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.file)
    }
}

/// Functions, the outermost first.
type Path = Vec<Function>;

/// Compares the document with the source and with what happens.
pub(crate) fn run(shell: &Shell) -> Result<()> {
    let document = shell.read_file(DOCUMENT)?;
    let output = stacks(shell)?;
    let root = shell.current_dir().join(ROOT);
    let mut findings = Vec::new();
    for limit in &LIMITS {
        let seen = longest(&output, limit.name)?;
        let listed = listed(&document, limit.name);
        let found = listed.and_then(|listed| {
            let mut found = limit.check(&listed);
            found.extend(calls::check(&listed, |file| {
                std::fs::read_to_string(root.join(file)).ok()
            })?);
            found.extend(compare(&listed, &seen));
            Ok(found)
        });
        let found = found.unwrap_or_else(|error| vec![format!("{error:#}")]);
        if found.is_empty() {
            let (functions, files) = sizes(&seen[0]);
            eprintln!("{}: {functions} functions, {files} files, as listed", limit.name);
        } else {
            findings.extend(found.iter().map(|found| format!("{}: {found}", limit.name)));
            findings.push(format!(
                "what happens is:\n\n{FENCE}{}\n{}```\n",
                limit.name,
                block(&seen[0])
            ));
        }
    }
    ensure!(findings.is_empty(), "cold paths and {DOCUMENT} differ:\n{}", findings.join("\n"));
    Ok(())
}

/// What `zonal-golden stacks` prints.
fn stacks(shell: &Shell) -> Result<String> {
    // Its dependencies may stay as they are: they call the core, which is compiled where it is
    // called with types.
    let plain = ["zonal", "zonal-golden"].map(|package| {
        ["--config".to_owned(), format!("profile.dev.package.{package}.opt-level=0")]
    });
    let plain = plain.concat();
    cmd!(shell, "cargo build --locked -p zonal-golden {plain...}").env_remove("RUSTFLAGS").run()?;
    let binary = target_dir(shell).join("debug/zonal-golden");
    Ok(cmd!(shell, "{binary} stacks").quiet().read()?)
}

/// The path of that name in the document.
fn listed(document: &str, name: &str) -> Result<Path> {
    let start = format!("{FENCE}{name}");
    let mut blocks = document.lines().skip_while(|line| line.trim_end() != start);
    ensure!(blocks.next().is_some(), "{DOCUMENT} has no block {start}");
    let mut path = Path::new();
    for line in blocks {
        if line.starts_with("```") {
            ensure!(!path.is_empty(), "the block {start} of {DOCUMENT} is empty");
            return Ok(path);
        }
        let mut words = line.split_whitespace();
        let (Some(name), Some(file)) = (words.next(), words.next()) else {
            bail!("`{line}` in the block {start} is not FUNCTION FILE");
        };
        path.push(Function { name: name.to_owned(), file: file.to_owned() });
    }
    bail!("the block {start} of {DOCUMENT} does not end")
}

/// The longest paths to a write in the room `zone`, of all that `output` has under `name`.
fn longest(output: &str, name: &str) -> Result<Vec<Path>> {
    let mut paths = BTreeSet::new();
    for line in output.lines() {
        let mut words = line.split(' ');
        if (words.next(), words.next()) != (Some(name), Some("write")) {
            continue;
        }
        let words: Vec<&str> = words.collect();
        let functions = words.chunks(2).map(|pair| match *pair {
            [name, file] => Ok(Function { name: name.to_owned(), file: file.to_owned() }),
            _ => bail!("`zonal-golden stacks` says `{line}`"),
        });
        let mut path = functions.collect::<Result<Path>>()?;
        path.retain(|function| !GROUND.iter().any(|ground| function.file.starts_with(ground)));
        paths.insert(path);
    }
    let mut paths: Vec<Path> = paths.into_iter().filter(reaches_goal).collect();
    let most = paths.iter().map(Vec::len).max();
    let most = most.with_context(|| format!("no stack of `{name}` writes in {GOAL}"))?;
    paths.retain(|path| path.len() == most);
    Ok(paths)
}

fn reaches_goal(path: &Path) -> bool {
    path.last().is_some_and(|last| last.file.starts_with(GOAL))
}

/// Numbers of functions and of files, without brackets.
fn sizes(path: &Path) -> (usize, usize) {
    let counted = || path.iter().filter(|function| !function.is_bracket());
    let files: BTreeSet<&str> = counted().map(|function| function.file.as_str()).collect();
    (counted().count(), files.len())
}

fn block(path: &Path) -> String {
    path.iter().map(|function| format!("{function}\n")).collect()
}

/// What differs between the list and what happens.
fn compare(listed: &Path, seen: &[Path]) -> Option<String> {
    (!seen.contains(listed)).then(|| "what is listed is not what happens".to_owned())
}

impl Limit {
    /// What is too long, and which files come back.
    fn check(&self, path: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let (functions, files) = sizes(path);
        if functions > self.functions {
            found.push(format!("{functions} functions, more than {}", self.functions));
        }
        if files > self.files {
            found.push(format!("{files} files, more than {}", self.files));
        }
        let mut left = BTreeSet::new();
        let counted: Vec<&Function> = path.iter().filter(|one| !one.is_bracket()).collect();
        for pair in counted.windows(2) {
            if pair[0].file != pair[1].file {
                left.insert(&pair[0].file);
            }
            if left.contains(&pair[1].file) {
                found.push(format!("`{}` comes back to {}", pair[1].name, pair[1].file));
            }
        }
        found
    }
}

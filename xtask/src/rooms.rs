//! That imports inside the core run one way: `cargo xtask rooms`.
//!
//! A room is a folder directly below the source directory. `xtask/rooms.toml` says on which floor
//! each is; a room may import those of lower floors, and `lib.rs` all of them. What counts is the
//! room that a path leads to, after the re-exports of `lib.rs` are resolved: `crate::Order` is an
//! import of the room that has `Order`. Comments and what is compiled for tests only are left
//! out; the bodies of macros are read token by token.

pub(crate) mod imports;
pub(crate) mod modules;
mod names;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, ensure};
use imports::Import;
use modules::{Crate, Sources};
use names::{Names, Place};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use xshell::Shell;

/// Where the core's sources are.
pub(crate) const ROOT: &str = "crates/zonal/src";
const RULES: &str = "xtask/rooms.toml";
/// The room above all others.
const CRATE_ROOT: &str = "lib.rs";
const MOST_ALLOWED: usize = 10;

/// `rooms.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    /// From the top to the ground.
    floors: Vec<Vec<String>>,
    /// `FROM -> TO`, both on one floor.
    #[serde(default)]
    beside: Vec<String>,
    #[serde(default)]
    allow: Vec<Allowed>,
}

/// A file that may import one room against the direction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    from: String,
    to: String,
    #[serde(default)]
    reason: String,
}

/// Something that is wrong, and where.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Finding {
    file: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// What a check came to.
#[derive(Debug)]
struct Verdict {
    rooms: usize,
    /// Imports of one room by another, one for each file, line and path.
    imports: usize,
    findings: Vec<Finding>,
}

/// Checks the sources below `root`.
pub(crate) fn run(shell: &Shell, root: Option<&Path>) -> Result<()> {
    let rules: Rules =
        toml::from_str(&shell.read_file(RULES)?).with_context(|| RULES.to_owned())?;
    let root = root.unwrap_or_else(|| Path::new(ROOT));
    let sources = Sources::read(&shell.current_dir().join(root))?;
    let verdict = check(&rules, &sources)?;
    let prefix = root.display();
    let lines = verdict.findings.iter().map(|finding| match finding.file.as_str() {
        RULES => finding.to_string(),
        _ => format!("{prefix}/{finding}"),
    });
    let lines: Vec<String> = lines.collect();
    ensure!(
        lines.is_empty(),
        "{} findings about the rooms of the core:\n{}\n{}",
        lines.len(),
        lines.join("\n"),
        summary(&verdict.findings)
    );
    let Verdict { rooms, imports, .. } = verdict;
    let allowed = rules.allow.len();
    eprintln!("{rooms} rooms, {imports} imports among them, all one way but {allowed} allowed");
    Ok(())
}

/// How often each room imports which against the direction.
fn summary(findings: &[Finding]) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for finding in findings {
        if let Some((rooms, _)) = finding.what.split_once(": ") {
            *counts.entry(rooms).or_default() += 1;
        }
    }
    let lines = counts.iter().map(|(rooms, count)| format!("{count:>4} x {rooms}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// All that is wrong with `sources`.
fn check(rules: &Rules, sources: &Sources) -> Result<Verdict> {
    let tree = Crate::parse(sources)?;
    let names = Names::of(&tree);
    let mut judge = Judge::new(rules);
    judge.folders(&tree);
    for import in imports::all(&tree) {
        judge.import(&names, &import);
    }
    let imports = judge.seen.len();
    let rooms = judge.rooms(&tree).len();
    judge.leftovers();
    let mut findings = judge.findings;
    findings.extend(tree.strays.iter().map(|file| Finding {
        file: file.clone(),
        line: 1,
        what: "no module leads here, so it is not checked".to_owned(),
    }));
    findings.sort();
    findings.dedup();
    Ok(Verdict { rooms, imports, findings })
}

/// Compares imports with the rules, and keeps what each rule was needed for.
struct Judge<'a> {
    rules: &'a Rules,
    /// Room and floor; 0 is the ground.
    floors: BTreeMap<&'a str, usize>,
    beside: BTreeSet<(&'a str, &'a str)>,
    used_beside: BTreeSet<(&'a str, &'a str)>,
    used_allow: BTreeSet<usize>,
    /// File, line and path of every import between rooms.
    seen: BTreeSet<(String, usize, String)>,
    findings: Vec<Finding>,
}

impl<'a> Judge<'a> {
    fn new(rules: &'a Rules) -> Self {
        let mut judge = Self {
            rules,
            floors: BTreeMap::new(),
            beside: BTreeSet::new(),
            used_beside: BTreeSet::new(),
            used_allow: BTreeSet::new(),
            seen: BTreeSet::new(),
            findings: Vec::new(),
        };
        for (floor, rooms) in rules.floors.iter().rev().enumerate() {
            for room in rooms {
                if judge.floors.insert(room, floor).is_some() {
                    judge.rule(format!("the room `{room}` is on two floors"));
                }
            }
        }
        for pair in &rules.beside {
            match pair.split_once(" -> ") {
                Some((from, to)) => judge.add_beside(from, to),
                None => judge.rule(format!("`{pair}` is not of the form \"FROM -> TO\"")),
            }
        }
        if rules.allow.len() > MOST_ALLOWED {
            judge.rule(format!(
                "{} imports are allowed against the direction, more than {MOST_ALLOWED}",
                rules.allow.len()
            ));
        }
        for Allowed { from, to, reason } in &rules.allow {
            if reason.trim().is_empty() {
                judge.rule(format!("{from} -> {to} is allowed without a reason"));
            }
        }
        judge
    }

    fn add_beside(&mut self, from: &'a str, to: &'a str) {
        let floor = self.floors.get(from);
        if floor.is_none() || floor != self.floors.get(to) {
            self.rule(format!("`{from}` and `{to}` are not on one floor"));
        }
        if self.beside.contains(&(to, from)) {
            self.rule(format!("`{from}` and `{to}` would import each other"));
        }
        self.beside.insert((from, to));
    }

    /// The rules themselves are wrong.
    fn rule(&mut self, what: String) {
        self.findings.push(Finding { file: RULES.to_owned(), line: 1, what });
    }

    fn rooms<'t>(&self, tree: &'t Crate) -> BTreeSet<&'t str> {
        let rooms = tree.files.iter().map(modules::SourceFile::room);
        rooms.filter(|room| *room != CRATE_ROOT).collect()
    }

    /// Every file is in a room with a floor, and every floor's rooms are there.
    fn folders(&mut self, tree: &Crate) {
        for file in &tree.files {
            let room = file.room();
            if room != CRATE_ROOT && !self.floors.contains_key(room) {
                let what = if file.name.contains('/') {
                    format!("the room `{room}` has no floor in {RULES}")
                } else {
                    "it is in no room".to_owned()
                };
                self.findings.push(Finding { file: file.name.clone(), line: 1, what });
            }
        }
        let there = self.rooms(tree);
        let gone = self.floors.keys().filter(|room| !there.contains(**room));
        let gone: Vec<_> = gone.map(|room| format!("there is no room `{room}`")).collect();
        for what in gone {
            self.rule(what);
        }
    }

    fn import(&mut self, names: &Names<'_>, import: &Import) {
        let Import { file, line, .. } = import;
        let (from, path) = (import.room.as_str(), import.written());
        let to = match names.place(&import.path) {
            Place::Room(room) => room,
            Place::Root => CRATE_ROOT.to_owned(),
            Place::Unknown if from == CRATE_ROOT => return,
            Place::Unknown => {
                let what = format!("{from} imports {path}, and where that is cannot be seen");
                return self.findings.push(Finding { file: file.clone(), line: *line, what });
            }
        };
        if from == to || from == CRATE_ROOT {
            return;
        }
        self.seen.insert((file.clone(), *line, path.clone()));
        if !self.may(file, from, &to) {
            let what = format!("{from} imports {to}: {path}");
            self.findings.push(Finding { file: file.clone(), line: *line, what });
        }
    }

    fn may(&mut self, file: &str, from: &str, to: &str) -> bool {
        if let (Some(upper), Some(lower)) = (self.floors.get(from), self.floors.get(to))
            && lower < upper
        {
            return true;
        }
        if let Some(&pair) = self.beside.iter().find(|pair| **pair == (from, to)) {
            self.used_beside.insert(pair);
            return true;
        }
        let entry = |allowed: &Allowed| allowed.from == file && allowed.to == to;
        let allowed = self.rules.allow.iter().position(entry);
        self.used_allow.extend(allowed);
        allowed.is_some()
    }

    /// Rules that nothing needs any more.
    fn leftovers(&mut self) {
        let unused = self.beside.difference(&self.used_beside);
        let mut unused: Vec<String> =
            unused.map(|(from, to)| format!("nothing needs \"{from} -> {to}\"")).collect();
        for (at, Allowed { from, to, .. }) in self.rules.allow.iter().enumerate() {
            if !self.used_allow.contains(&at) {
                unused.push(format!("nothing needs the entry {from} -> {to}"));
            }
        }
        for what in unused {
            self.rule(what);
        }
    }
}

//! Where a result is from: the host, the time, the version and the commit. Every JSON row says so.
//!
//! ```
//! let origin = zonal_cli::provenance::Provenance::of_this_run();
//! assert_eq!(origin.version, env!("CARGO_PKG_VERSION"));
//! assert!(origin.date.ends_with('Z'));
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use serde::Serialize;

/// What is said of a run in each of its rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Provenance {
    /// Name of the host.
    pub host: String,
    /// When the run began, in UTC as RFC 3339 has it.
    pub date: String,
    /// Version of zonal.
    pub version: &'static str,
    /// The commit it was built from, if that is known: see [`commit`](Self::of_this_run).
    pub commit: Option<String>,
}

impl Provenance {
    /// That of this process.
    ///
    /// The commit is what `ZONAL_COMMIT` was when it was compiled. Without that it is what is checked
    /// out where it was compiled, unless that changed after this program was built; changes that
    /// were not committed are not noticed. Neither costs a build anything: nothing is compiled
    /// again for a new commit.
    #[must_use]
    pub fn of_this_run() -> &'static Self {
        static ORIGIN: OnceLock<Provenance> = OnceLock::new();
        ORIGIN.get_or_init(|| {
            let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            let now = humantime::format_rfc3339_seconds(SystemTime::now());
            let given = option_env!("ZONAL_COMMIT").map(str::to_owned);
            let program = std::env::current_exe().ok();
            let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            let found = || checked_out(&checkout, &program?);
            Self {
                host: host.trim().to_owned(),
                date: now.to_string(),
                version: env!("CARGO_PKG_VERSION"),
                commit: given.or_else(found),
            }
        })
    }
}

/// What was checked out last, if that was before `program` was built.
fn checked_out(checkout: &Path, program: &Path) -> Option<String> {
    let log = directory(checkout)?.join("logs/HEAD");
    let changed = |path: &Path| fs::metadata(path).and_then(|it| it.modified()).ok();
    if changed(&log)? > changed(program)? {
        return None;
    }
    let text = fs::read_to_string(log).ok()?;
    // Each line: the old commit, the new one, who, when.
    let commit = text.lines().last()?.split(' ').nth(1)?;
    let is_hash = commit.len() >= 40 && commit.bytes().all(|it| it.is_ascii_hexdigit());
    is_hash.then(|| commit.to_owned())
}

/// Where git keeps what is about this checkout.
fn directory(checkout: &Path) -> Option<PathBuf> {
    let git = checkout.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    // A worktree has a file that says where.
    let text = fs::read_to_string(&git).ok()?;
    Some(checkout.join(text.strip_prefix("gitdir: ")?.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_commit_is_that_of_the_log_if_it_is_older() {
        let root = tempfile::tempdir().expect("a directory");
        let (logs, program) = (root.path().join("git/logs"), root.path().join("zonal"));
        fs::create_dir_all(&logs).expect("made");
        fs::write(root.path().join(".git"), "gitdir: git\n").expect("written");
        assert_eq!(checked_out(root.path(), &program), None, "there is no log");
        let (old, new) = ("0".repeat(40), "ab".repeat(20));
        let line = format!("{old} {new} A <a@b> 1 +0000\tcommit: x\n");
        fs::write(logs.join("HEAD"), line.repeat(2)).expect("written");
        let file = fs::File::create(&program).expect("made");
        let now = SystemTime::now();
        file.set_modified(now + Duration::from_secs(60)).expect("set");
        assert_eq!(checked_out(root.path(), &program), Some(new));
        file.set_modified(now - Duration::from_secs(3600)).expect("set");
        assert_eq!(checked_out(root.path(), &program), None, "built before that commit");
    }
}

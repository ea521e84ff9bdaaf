//! That the crates can be published: `cargo xtask package`, and that what they offer is still
//! there: `cargo xtask semver`.

use crate::steps::target_dir;
use crate::tools;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use xshell::{Shell, cmd};

/// What every package has beside its code.
const FILES: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// `cargo metadata`, as far as it is used.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// Registries it may go to: `None` is any, an empty list none.
    publish: Option<Vec<String>>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    description: Option<String>,
    license: Option<String>,
    repository: Option<String>,
    rust_version: Option<String>,
    keywords: Vec<String>,
    categories: Vec<String>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

impl Package {
    fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    fn has(&self, kind: &str) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|of| of == kind))
    }

    /// Whether it is there for other crates: a program's library is its own.
    fn is_library(&self) -> bool {
        self.has("lib") && !self.has("bin")
    }

    fn dir(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// What is wrong with it, if its package has these files.
    fn findings(&self, files: &BTreeSet<&str>) -> Vec<String> {
        let lacks = |what: &str| format!("{} lacks {what}", self.name);
        let texts = [
            ("a description", self.description.is_some()),
            ("a license", self.license.is_some()),
            ("a repository", self.repository.is_some()),
            ("a rust-version", self.rust_version.is_some()),
            ("keywords", !self.keywords.is_empty()),
            ("categories", !self.categories.is_empty()),
        ];
        let fields = texts.into_iter().filter(|(_, there)| !there).map(|(what, _)| lacks(what));
        let own = FILES.map(str::to_owned).into_iter().chain(self.sources());
        let gone = own.filter(|file| !files.contains(file.as_str()));
        fields.chain(gone.map(|file| lacks(&format!("the file {file}")))).collect()
    }

    /// The files that its library, programs, examples and tests start with.
    fn sources(&self) -> impl Iterator<Item = String> {
        let below =
            |target: &Target| Some(target.src_path.strip_prefix(self.dir()).ok()?.to_owned());
        let below = self.targets.iter().filter_map(below);
        below.map(|path| path.to_string_lossy().into_owned())
    }
}

fn published(shell: &Shell) -> Result<Vec<Package>> {
    let json =
        cmd!(shell, "cargo metadata --locked --no-deps --format-version 1").quiet().read()?;
    let metadata: Metadata = serde_json::from_str(&json).context("what cargo metadata says")?;
    let published: Vec<Package> =
        metadata.packages.into_iter().filter(Package::is_published).collect();
    ensure!(!published.is_empty(), "no crate is to be published");
    Ok(published)
}

/// `-p NAME` for each.
fn selected<'p>(packages: impl IntoIterator<Item = &'p Package>) -> Vec<&'p str> {
    packages.into_iter().flat_map(|package| ["-p", package.name.as_str()]).collect()
}

fn cargo_home() -> Result<PathBuf> {
    let of_user = || Some(std::env::home_dir()?.join(".cargo"));
    std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(of_user)
        .context("neither CARGO_HOME nor a home directory is set")
}

/// Removes what cargo unpacked of these packages from its own temporary registries before.
///
/// A package is built against those that it depends on as they were packaged with it, and cargo
/// unpacks each into its home by name and version alone: without this, one that has changed since
/// at the same version is built against as it was.
fn forget_unpacked(shell: &Shell, sources: &Path, packages: &[Package]) -> Result<()> {
    if !shell.path_exists(sources) {
        return Ok(());
    }
    for registry in shell.read_dir(sources)? {
        // A registry's name begins with its host, and one in a directory has none.
        if !registry.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"-")) {
            continue;
        }
        for Package { name, version, .. } in packages {
            shell.remove_path(registry.join(format!("{name}-{version}")))?;
        }
    }
    Ok(())
}

/// Removes what cargo built from its temporary registries before: it takes a package of a registry for what it was, at the
/// same version, wherever that was unpacked from.
fn forget_built(shell: &Shell, built: &Path) -> Result<()> {
    if !shell.path_exists(built) {
        return Ok(());
    }
    for file in shell.read_dir(built)? {
        let is_list = file.extension().is_some_and(|extension| extension == "d");
        if !is_list || !shell.read_file(&file)?.contains("/registry/src/-") {
            continue;
        }
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        for library in ["rlib", "rmeta"] {
            shell.remove_path(built.join(format!("lib{name}.{library}")))?;
        }
    }
    Ok(())
}

/// Packages all crates, looks into the packages, and builds those of libraries from their packages
/// alone.
pub(crate) fn run(shell: &Shell) -> Result<()> {
    let packages = published(shell)?;
    let mut findings = Vec::new();
    for package in &packages {
        let name = &package.name;
        let files = cmd!(shell, "cargo package --locked --allow-dirty --list -p {name}");
        let files = files.quiet().read()?;
        findings.extend(package.findings(&files.lines().collect()));
    }
    ensure!(findings.is_empty(), "packages are not complete:\n{}", findings.join("\n"));
    forget_unpacked(shell, &cargo_home()?.join("registry/src"), &packages)?;
    forget_built(shell, &target_dir(shell).join("debug/deps"))?;
    let all = selected(&packages);
    cmd!(shell, "cargo package --locked --allow-dirty --no-verify --quiet {all...}").run()?;
    // Not the programs: their dependencies take minutes, and were built for the tests.
    let libraries = selected(packages.iter().filter(|package| package.is_library()));
    cmd!(shell, "cargo package --locked --allow-dirty {libraries...}")
        // As the workspace has them built, or all dependencies would be built again: a package
        // has no profile of the workspace.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .run()?;
    Ok(())
}

/// The last release that HEAD comes after.
pub(crate) fn last_tag(shell: &Shell) -> Option<String> {
    let describe = cmd!(shell, "git describe --tags --abbrev=0 --match v*");
    let tag = describe.quiet().ignore_stderr().read().ok()?;
    (!tag.is_empty()).then_some(tag)
}

/// Compares the libraries' public items with those of the last tag.
pub(crate) fn semver(shell: &Shell) -> Result<()> {
    let Some(tag) = last_tag(shell) else {
        eprintln!("there is no tag v* before HEAD: nothing to compare with");
        return Ok(());
    };
    tools::require(shell, "cargo-semver-checks")?;
    let root = shell.current_dir();
    let mut packages = published(shell)?;
    packages.retain(Package::is_library);
    // A crate that the tag does not have cannot have broken anything.
    packages.retain(|package| {
        let manifest = package.manifest_path.strip_prefix(&root).unwrap_or(&package.manifest_path);
        let object = format!("{tag}:{}", manifest.display());
        let there = cmd!(shell, "git cat-file -e {object}").quiet().ignore_stderr().run().is_ok();
        if !there {
            eprintln!("{}: not in {tag}", package.name);
        }
        there
    });
    ensure!(!packages.is_empty(), "{tag} has none of the libraries");
    let libraries = selected(&packages);
    Ok(cmd!(shell, "cargo semver-checks --baseline-rev {tag} {libraries...}").run()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(json: &str) -> Package {
        let common = r#""name": "x", "version": "0.1.0",
            "manifest_path": "/w/crates/x/Cargo.toml", "targets": [
            {"kind": ["lib"], "src_path": "/w/crates/x/src/lib.rs"},
            {"kind": ["example"], "src_path": "/w/crates/x/examples/e.rs"}]"#;
        serde_json::from_str(&format!("{{{common}, {json}}}")).unwrap()
    }

    const FULL: &str = r#""publish": null, "description": "d", "license": "MIT", "repository": "r",
        "rust_version": "1.88", "keywords": ["k"], "categories": ["c"]"#;
    const LISTED: [&str; 5] =
        ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "src/lib.rs", "examples/e.rs"];

    #[test]
    fn complete_packages_pass() {
        assert_eq!(package(FULL).findings(&LISTED.into()), [""; 0]);
    }

    #[test]
    fn each_missing_file_and_field_is_found() {
        for file in LISTED {
            let mut files = BTreeSet::from(LISTED);
            files.remove(file);
            let says = format!("x lacks the file {file}");
            assert_eq!(package(FULL).findings(&files), [says]);
        }
        let bare = r#""publish": null, "keywords": [], "categories": []"#;
        assert_eq!(package(bare).findings(&LISTED.into()).len(), 6);
    }

    #[test]
    fn crates_for_the_project_itself_are_left_out() {
        assert!(package(FULL).is_published());
        assert!(!package(&FULL.replace("null", "[]")).is_published());
        assert!(package(&FULL.replace("null", r#"["crates-io"]"#)).is_published());
    }

    #[test]
    fn a_program_with_a_library_is_no_library() {
        let mut package = package(FULL);
        assert!(package.is_library());
        package.targets.push(Target { kind: vec!["bin".into()], src_path: PathBuf::new() });
        assert!(!package.is_library());
    }

    #[test]
    fn only_own_packages_of_temporary_registries_are_unpacked_anew() {
        let shell = Shell::new().unwrap();
        let sources = shell.create_temp_dir().unwrap();
        let there = ["-0a/x-0.1.0", "-0a/x-0.1.1", "-0a/y-0.1.0", "crates.io-0a/x-0.1.0"]
            .map(|source| sources.path().join(source).join("Cargo.toml"));
        for manifest in &there {
            shell.write_file(manifest, "").unwrap();
        }
        forget_unpacked(&shell, sources.path(), &[package(FULL)]).unwrap();
        assert_eq!(there.map(|manifest| manifest.exists()), [false, true, true, true]);
        forget_unpacked(&shell, &sources.path().join("none"), &[package(FULL)]).unwrap();
    }
    #[test]
    fn only_what_temporary_registries_have_is_built_anew() {
        let shell = Shell::new().unwrap();
        let built = shell.create_temp_dir().unwrap();
        let from = [("x-1", "/registry/src/-0a/x-0.1.0/src/lib.rs"), ("x-2", "/w/x/src/lib.rs")];
        for (name, source) in from {
            shell.write_file(built.path().join(format!("{name}.d")), source).unwrap();
            shell.write_file(built.path().join(format!("lib{name}.rlib")), "").unwrap();
        }
        forget_built(&shell, built.path()).unwrap();
        let there = ["libx-1.rlib", "libx-2.rlib"].map(|file| built.path().join(file).exists());
        assert_eq!(there, [false, true]);
        forget_built(&shell, &built.path().join("none")).unwrap();
    }
}

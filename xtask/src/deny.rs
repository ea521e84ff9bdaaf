//! What dependencies may be: licences, sources and versions, by the rules of `deny.toml`.
//!
//! `cargo deny` checks the same file and more; to build it takes minutes of a fresh machine, what it is made of
//! for this (`spdx`) seconds.

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use serde::Deserialize;
use std::collections::BTreeMap;
use xshell::Shell;

/// The part of `deny.toml` that is checked here.
#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

/// More licences that one crate may have.
#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

/// Every dependency of the workspace, with all features, on the platform that the project is built on.
pub(crate) fn run(shell: &Shell) -> Result<()> {
    let rules: Rules = toml::from_str(&shell.read_file("deny.toml")?)?;
    let options = ["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"].map(Into::into);
    let metadata = MetadataCommand::new()
        .current_dir(shell.current_dir())
        .features(cargo_metadata::CargoOpt::AllFeatures)
        .other_options(options.to_vec())
        .exec()?;
    let used = used(&metadata)?;
    let faults: Vec<_> = used.iter().filter_map(|package| rules.fault(package)).collect();
    for (name, versions) in twice(&used) {
        eprintln!("note: {name} is there in several versions: {}", versions.join(", "));
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    eprintln!("{} packages, all as deny.toml allows", used.len());
    Ok(())
}

/// The packages that are built for the platform.
fn used(metadata: &Metadata) -> Result<Vec<&Package>> {
    let graph = metadata.resolve.as_ref().context("cargo says nothing of dependencies")?;
    Ok(graph.nodes.iter().map(|node| &metadata[&node.id]).collect())
}

/// The versions of those that are there more than once.
fn twice(used: &[&Package]) -> Vec<(String, Vec<String>)> {
    let mut versions = BTreeMap::<_, Vec<_>>::new();
    for package in used {
        versions.entry(package.name.to_string()).or_default().push(package.version.to_string());
    }
    versions.into_iter().filter(|(_, versions)| versions.len() > 1).collect()
}

impl Rules {
    /// What is wrong with a package.
    fn fault(&self, package: &Package) -> Option<String> {
        let named = |what: &str| Some(format!("{} {}: {what}", package.name, package.version));
        if let Some(source) = &package.source {
            let from = source.repr.strip_prefix("registry+").unwrap_or(&source.repr);
            if !self.sources.allow_registry.iter().any(|allowed| allowed == from) {
                return named(&format!("it comes from {source}"));
            }
        }
        let any = |dependency: &&cargo_metadata::Dependency| {
            dependency.req == cargo_metadata::semver::VersionReq::STAR && dependency.path.is_none()
        };
        // Those of others are not this project's to choose.
        let own = package.source.is_none();
        if let Some(dependency) = package.dependencies.iter().find(any).filter(|_| own) {
            return named(&format!("it takes any version of {}", dependency.name));
        }
        let Some(license) = &package.license else { return named("it names no licence") };
        match spdx::Expression::parse_mode(license, spdx::ParseMode::LAX) {
            Err(error) => named(&format!("its licence cannot be read: {error}")),
            Ok(terms) if terms.evaluate(|needed| self.allows(&package.name, needed)) => None,
            Ok(_) => named(&format!("deny.toml does not allow its licence, {license}")),
        }
    }

    fn allows(&self, name: &str, needed: &spdx::LicenseReq) -> bool {
        let own = self.licenses.exceptions.iter().filter(|exception| exception.name == name);
        let mut all = self.licenses.allow.iter().chain(own.flat_map(|exception| &exception.allow));
        all.any(|allowed| *allowed == needed.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(license: Option<&str>, source: Option<&str>, req: &str) -> Package {
        let dependency = json!({
            "name": "b", "req": req, "kind": null, "optional": false, "uses_default_features": true,
            "features": [], "target": null, "rename": null, "registry": null, "source": null,
        });
        let whole = json!({
            "name": "a", "version": "1.0.0", "id": "a", "license": license, "source": source,
            "dependencies": [dependency], "targets": [], "features": {}, "manifest_path": "/a/Cargo.toml",
        });
        serde_json::from_value(whole).expect("as cargo writes it")
    }

    #[test]
    fn each_rule_finds_what_breaks_it() {
        let rules = Rules {
            licenses: Licenses { allow: vec!["MIT".into(), "Zlib".into()], exceptions: vec![] },
            sources: Sources { allow_registry: vec!["https://here".into()] },
        };
        let fault = |license, source, req| rules.fault(&package(license, source, req));
        let here = Some("registry+https://here");
        assert_eq!(fault(Some("MIT"), here, "1"), None);
        assert_eq!(fault(Some("MIT/Apache-2.0"), here, "1"), None, "one of them will do");
        assert_eq!(fault(Some("Zlib AND MIT"), None, "1"), None);
        assert_eq!(fault(Some("MIT"), here, "*"), None, "not ours");
        for (license, source, req) in [
            (Some("GPL-3.0-only"), here, "1"),
            (Some("MIT AND Apache-2.0"), here, "1"),
            (Some("to be asked for"), here, "1"),
            (None, here, "1"),
            (Some("MIT"), Some("registry+https://elsewhere"), "1"),
            (Some("MIT"), Some("git+https://here"), "1"),
            (Some("MIT"), None, "*"),
        ] {
            assert!(fault(license, source, req).is_some(), "{license:?} {source:?} {req}");
        }
        for (name, wrong) in [("a", false), ("b", true)] {
            let exceptions = vec![Exception { name: name.into(), allow: vec!["MPL-2.0".into()] }];
            let licenses = Licenses { allow: vec![], exceptions };
            let rules = Rules { licenses, sources: Sources { allow_registry: vec![] } };
            let fault = rules.fault(&package(Some("MPL-2.0"), None, "1"));
            assert_eq!(fault.is_some(), wrong, "an exception for {name}");
        }
    }
}

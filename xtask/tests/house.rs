//! The rules of the house that no lint knows: short files, lints that each crate has, and an example in the
//! documentation of each public module of the libraries.

use cargo_metadata::MetadataCommand;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

type Test = Result<(), Box<dyn Error>>;

/// Lines that a file has at most.
const LINES: usize = 500;

/// Public modules without an example of their own, and why.
const NO_EXAMPLE: [(&str, &str); 6] = [
    ("crates/zonal/src/pcp/mod.rs", "names what its modules have; the presets' examples use it"),
    ("crates/zonal/src/zone/lists/mod.rs", "has no state of its own; its policies have examples"),
    ("crates/zonal/src/zone/tables.rs", "is made by the allocator alone"),
    ("crates/zonal-sim/src/lock.rs", "is used through the platform of a simulation"),
    ("crates/zonal-sim/src/run.rs", "is used through the platform of a simulation"),
    ("crates/zonal-sim/src/slot.rs", "is used through the platform of a simulation"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files below `dir` that end with `ending`, without what was built.
fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type()))?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if kind?.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, ending, found)?;
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    Ok(())
}

fn all_files(ending: &str) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    files(&root(), ending, &mut found)?;
    found.sort_unstable();
    Ok(found)
}

/// What is wrong with the length of a file.
fn too_long(text: &str) -> Option<usize> {
    Some(text.lines().count()).filter(|&lines| lines > LINES)
}

/// The names of the modules that a file has as public files of their own.
fn public_modules(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
}

/// Whether the documentation in a file has an example.
fn has_example(text: &str) -> bool {
    text.lines().map(str::trim_start).any(|line| {
        let doc = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
        doc.is_some_and(|doc| doc.trim_start().starts_with("```"))
            || line.starts_with("#![doc = include_str!(")
    })
}

/// The public modules of a file, and theirs.
fn collect(file: &Path, found: &mut Vec<PathBuf>) -> Test {
    let text = fs::read_to_string(file)?;
    let is_root = file.ends_with("lib.rs") || file.ends_with("mod.rs");
    let dir = if is_root { file.with_file_name("") } else { file.with_extension("") };
    for name in public_modules(&text) {
        let places = [dir.join(format!("{name}.rs")), dir.join(name).join("mod.rs")];
        let place = places.into_iter().find(|place| place.exists());
        let place = place.ok_or_else(|| format!("{}: no file of {name}", file.display()))?;
        collect(&place, found)?;
        found.push(place);
    }
    Ok(())
}

#[test]
fn no_file_is_long() -> Test {
    let mut long = Vec::new();
    for path in all_files(".rs")? {
        let lines = too_long(&fs::read_to_string(&path)?);
        long.extend(lines.map(|lines| format!("{}: {lines} lines", path.display())));
    }
    assert!(long.is_empty(), "{long:#?}");
    Ok(())
}

#[test]
fn each_crate_has_the_lints_and_functions_are_short() -> Test {
    let clippy = fs::read_to_string(root().join("clippy.toml"))?;
    assert!(clippy.contains("too-many-lines-threshold = 70"));
    let workspace: toml::Table = toml::from_str(&fs::read_to_string(root().join("Cargo.toml"))?)?;
    let lint = &workspace["workspace"]["lints"]["clippy"]["too_many_lines"];
    assert_eq!(lint.as_str(), Some("deny"));
    let mut without = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        let manifest = entry?.path().join("Cargo.toml");
        let table: toml::Table = toml::from_str(&fs::read_to_string(&manifest)?)?;
        let lints = table.get("lints").and_then(|lints| lints.get("workspace"));
        if lints.and_then(toml::Value::as_bool) != Some(true) {
            without.push(manifest);
        }
    }
    assert!(without.is_empty(), "no lints of the workspace: {without:#?}");
    Ok(())
}

#[test]
fn each_public_module_has_an_example() -> Test {
    let mut modules = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        let library = entry?.path().join("src/lib.rs");
        if library.exists() {
            collect(&library, &mut modules)?;
            modules.push(library);
        }
    }
    assert!(modules.len() > 100, "{} modules are not all of them", modules.len());
    let mut without = Vec::new();
    for module in modules {
        if !has_example(&fs::read_to_string(&module)?) {
            without.push(module.strip_prefix(root())?.to_owned());
        }
    }
    without.sort_unstable();
    let mut known = NO_EXAMPLE.map(|(path, _)| PathBuf::from(path));
    known.sort_unstable();
    assert_eq!(without, known, "these, or those that have one by now, differ from the list");
    Ok(())
}

/// Whether any file has a test.
fn has_test(files: &[PathBuf]) -> std::io::Result<bool> {
    let mut texts = files.iter().map(fs::read_to_string);
    texts.try_fold(false, |has, text| Ok(has || text?.contains("#[test]")))
}

/// One that has none would be compiled a second time, for nothing: the largest took minutes.
#[test]
fn what_is_compiled_for_tests_has_some() -> Test {
    let manifest = root().join("Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec()?;
    let mut differ = Vec::new();
    let targets = metadata.packages.iter().flat_map(|package| &package.targets);
    for target in targets.filter(|it| it.is_lib() || it.is_bin() || it.is_example()) {
        let source = target.src_path.as_std_path();
        let mut sources = vec![source.to_owned()];
        if !target.is_bin() && (source.ends_with("lib.rs") || source.ends_with("main.rs")) {
            files(&source.with_file_name(""), ".rs", &mut sources)?;
        } else if target.is_bin() {
            // A library beside it has its own.
            let text = fs::read_to_string(source)?;
            let modules =
                text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
            for module in modules {
                let file = source.with_file_name(format!("{module}.rs"));
                sources.extend(file.exists().then_some(file));
                let folder = source.with_file_name(module);
                if folder.is_dir() {
                    files(&folder, ".rs", &mut sources)?;
                }
            }
        }
        if target.test != has_test(&sources)? {
            differ.push(format!("{}: `test = {}`", source.display(), target.test));
        }
    }
    assert!(differ.is_empty(), "not so: {differ:#?}");
    Ok(())
}

#[test]
fn canary_what_breaks_a_rule_is_found() {
    assert_eq!(too_long(&"line\n".repeat(LINES)), None);
    assert_eq!(too_long(&"line\n".repeat(LINES + 1)), Some(501));
    let text = "mod own;\npub mod seen;\npub(crate) mod inner;\n    pub mod nested;\n";
    assert!(public_modules(text).eq(["seen"]));
    assert!(has_example("//! Text.\n//!\n//! ```\n//! let x = 1;\n//! ```\n"));
    assert!(!has_example("//! Text.\nlet fence = \"```\";\n"));
}

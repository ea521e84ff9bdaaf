//! The files of a crate, found as the compiler finds them: from `lib.rs` along `mod`.

use super::CRATE_ROOT;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::punctuated::Punctuated;
use syn::{Attribute, Item, Meta, Token};

/// Texts by their path below the source directory, with `/` between folders.
pub(crate) struct Sources(pub(crate) BTreeMap<String, String>);

impl Sources {
    /// All Rust files below `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut texts = BTreeMap::new();
        read_into(&mut texts, root, "")?;
        ensure!(texts.contains_key(CRATE_ROOT), "there is no lib.rs in {}", root.display());
        Ok(Self(texts))
    }
}

fn read_into(texts: &mut BTreeMap<String, String>, dir: &Path, prefix: &str) -> Result<()> {
    let listing = std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    for entry in listing {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read_into(texts, &entry.path(), &format!("{name}/"))?;
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(entry.path());
            texts.insert(name.clone(), text.with_context(|| format!("reading {name}"))?);
        }
    }
    Ok(())
}

/// A file that is compiled outside of tests.
pub(crate) struct SourceFile {
    /// Below the source directory.
    pub(crate) name: String,
    /// The module that the file is; empty for `lib.rs`.
    pub(crate) module: Vec<String>,
    pub(crate) items: Vec<Item>,
}

impl SourceFile {
    /// The folder that it is in. `zone.rs` beside a folder `zone` is in the room `zone`.
    pub(crate) fn room(&self) -> &str {
        self.module.first().map_or(CRATE_ROOT, String::as_str)
    }
}

/// All files of a crate that are compiled outside of tests.
pub(crate) struct Crate {
    pub(crate) files: Vec<SourceFile>,
    /// Files that no `mod` leads to.
    pub(crate) strays: Vec<String>,
}

impl Crate {
    pub(crate) fn parse(sources: &Sources) -> Result<Self> {
        let mut walk = Walk { sources, reached: BTreeSet::new(), files: Vec::new() };
        walk.file(CRATE_ROOT, Vec::new(), false)?;
        let strays = sources.0.keys().filter(|name| !walk.reached.contains(name.as_str()));
        let strays = strays.cloned().collect();
        Ok(Self { files: walk.files, strays })
    }
}

struct Walk<'s> {
    sources: &'s Sources,
    reached: BTreeSet<String>,
    files: Vec<SourceFile>,
}

impl Walk<'_> {
    fn file(&mut self, name: &str, module: Vec<String>, test: bool) -> Result<()> {
        let text = self.sources.0.get(name).with_context(|| format!("there is no {name}"))?;
        self.reached.insert(name.to_owned());
        let parsed = syn::parse_file(text).map_err(|error| {
            let at = error.span().start();
            anyhow::anyhow!("{name}:{}: {error}", at.line)
        })?;
        let test = test || only_for_tests(&parsed.attrs);
        self.children(name, &module, &parsed.items, test)?;
        if !test {
            self.files.push(SourceFile { name: name.to_owned(), module, items: parsed.items });
        }
        Ok(())
    }

    fn children(
        &mut self,
        file: &str,
        module: &[String],
        items: &[Item],
        test: bool,
    ) -> Result<()> {
        for item in items {
            if let Item::Macro(item) = item
                && test
            {
                self.reached.extend(included(file, &item.mac));
            }
            let Item::Mod(item) = item else { continue };
            let test = test || only_for_tests(&item.attrs);
            let mut child = module.to_vec();
            child.push(item.ident.to_string());
            if let Some((_, items)) = &item.content {
                self.children(file, &child, items, test)?;
                continue;
            }
            if item.attrs.iter().any(|attribute| attribute.path().is_ident("path")) {
                bail!("{file}: `mod {}` names its file, which is not understood here", item.ident);
            }
            let stem = child.join("/");
            let names = [format!("{stem}/mod.rs"), format!("{stem}.rs")];
            let name = names.into_iter().find(|name| self.sources.0.contains_key(name));
            let name = name.with_context(|| format!("{file}: `mod {}` has no file", item.ident))?;
            self.file(&name, child, test)?;
        }
        Ok(())
    }
}

/// The file beside `file` that a macro includes.
fn included(file: &str, mac: &syn::Macro) -> Option<String> {
    let name = mac.parse_body::<syn::LitStr>().ok().filter(|_| mac.path.is_ident("include"))?;
    let dir = file.rfind('/').map_or("", |end| &file[..=end]);
    Some(dir.to_owned() + &name.value())
}

/// Whether something with these attributes is compiled for tests only.
pub(crate) fn only_for_tests(attributes: &[Attribute]) -> bool {
    let mut conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.any(|attribute| attribute.parse_args().is_ok_and(|meta: Meta| implies_test(&meta)))
}

/// Whether a condition holds in tests only.
fn implies_test(condition: &Meta) -> bool {
    let list = || match condition {
        Meta::List(list) => {
            let parse = Punctuated::<Meta, Token![,]>::parse_terminated;
            list.parse_args_with(parse).map(|list| list.into_iter().collect()).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    if condition.path().is_ident("all") {
        return list().iter().any(implies_test);
    }
    if condition.path().is_ident("any") {
        let list = list();
        return !list.is_empty() && list.iter().all(implies_test);
    }
    matches!(condition, Meta::Path(path) if path.is_ident("test"))
}

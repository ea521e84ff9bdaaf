//! Where a path of the crate leads: through what modules name and re-export.

use super::imports::{self, absolute};
use super::modules::{Crate, only_for_tests};
use std::collections::{BTreeMap, BTreeSet};
use syn::Item;

/// Where a path leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Into a room.
    Room(String),
    /// To the crate's root: to something that `lib.rs` has itself, or to all of it.
    Root,
    /// Nothing of that name was found.
    Unknown,
}

/// What one module names.
#[derive(Default)]
struct Module {
    /// Things that are there.
    own: BTreeSet<String>,
    /// Names for what is elsewhere, by absolute path.
    elsewhere: BTreeMap<String, Vec<String>>,
    /// Modules whose names are here, too.
    globs: Vec<Vec<String>>,
}

/// What every module of a crate names.
pub(crate) struct Names<'c> {
    modules: BTreeMap<Vec<String>, Module>,
    /// Modules that `lib.rs` has a file for: the rooms.
    rooms: BTreeSet<&'c str>,
    /// Macros that are exported from the crate's root, and the rooms they are in.
    macros: BTreeMap<String, &'c str>,
}

impl<'c> Names<'c> {
    pub(crate) fn of(tree: &'c Crate) -> Self {
        let rooms = tree.files.iter().filter_map(|file| file.module.first());
        let rooms = rooms.map(String::as_str).collect();
        let mut names = Self { modules: BTreeMap::new(), rooms, macros: BTreeMap::new() };
        for file in &tree.files {
            names.add(&file.module, &file.items, file.room());
        }
        names
    }

    fn add(&mut self, path: &[String], items: &[Item], room: &'c str) {
        let mut module = Module::default();
        for item in items {
            if only_for_tests(imports::attributes(item)) {
                continue;
            }
            if let Item::Use(item) = item {
                module.names(path, item);
            } else if let Item::Macro(item) = item {
                let Some(name) = &item.ident else { continue };
                module.own.insert(name.to_string());
                if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
                    self.macros.insert(name.to_string(), room);
                }
            } else {
                module.own.extend(own_name(item));
                if let Item::Mod(item) = item
                    && let Some((_, items)) = &item.content
                {
                    let mut inner = path.to_vec();
                    inner.push(item.ident.to_string());
                    self.add(&inner, items, room);
                }
            }
        }
        self.modules.insert(path.to_vec(), module);
    }

    /// Where an absolute path leads, without the leading `crate`.
    pub(crate) fn place(&self, path: &[String]) -> Place {
        self.follow(path, &mut BTreeSet::new())
    }

    fn follow(&self, path: &[String], seen: &mut BTreeSet<Vec<String>>) -> Place {
        // A room is what its first segment says, whatever comes behind.
        if let Some(first) = path.first()
            && self.rooms.contains(first.as_str())
        {
            return Place::Room(first.clone());
        }
        if !seen.insert(path.to_vec()) {
            return Place::Unknown;
        }
        // Modules of `lib.rs` itself, as far as the path goes along them.
        let inline = (0..=path.len()).rev().find(|&len| self.modules.contains_key(&path[..len]));
        let (module, rest) = path.split_at(inline.unwrap_or(0));
        let Some(name) = rest.first() else { return Place::Root };
        self.name(module, name, &rest[1..], seen)
    }

    fn name(
        &self,
        module: &[String],
        name: &String,
        rest: &[String],
        seen: &mut BTreeSet<Vec<String>>,
    ) -> Place {
        let Some(names) = self.modules.get(module) else { return Place::Unknown };
        if let Some(elsewhere) = names.elsewhere.get(name) {
            return self.follow(&[elsewhere, rest].concat(), seen);
        }
        if module.is_empty()
            && let Some(room) = self.macros.get(name)
        {
            return Place::Room((*room).to_owned());
        }
        if names.own.contains(name) {
            return Place::Root;
        }
        let mut globs =
            names.globs.iter().filter(|glob| self.has(glob, name, &mut BTreeSet::new()));
        let found =
            globs.next().map(|glob| [glob.as_slice(), std::slice::from_ref(name), rest].concat());
        found.map_or(Place::Unknown, |path| self.follow(&path, seen))
    }

    /// Whether the module `path` has something of that name, itself or by re-export.
    fn has(&self, path: &[String], name: &String, seen: &mut BTreeSet<Vec<String>>) -> bool {
        let Some(names) = self.modules.get(path).filter(|_| seen.insert(path.to_vec())) else {
            return false;
        };
        names.own.contains(name)
            || names.elsewhere.contains_key(name)
            || names.globs.iter().any(|glob| self.has(glob, name, seen))
    }
}

impl Module {
    /// Takes in what a `use` in the module at `path` names.
    fn names(&mut self, path: &[String], item: &syn::ItemUse) {
        for leaf in imports::leaves(&item.tree) {
            // A path without `crate`, `self` or `super` starts at a child, or at another crate.
            let mut to = leaf.path.clone();
            if !imports::is_keyword(&to[0]) {
                to.insert(0, "self".to_owned());
            }
            let Some(to) = absolute(path, &to) else { continue };
            match leaf.name {
                Some(name) => drop(self.elsewhere.insert(name, to)),
                None => self.globs.push(to),
            }
        }
    }
}

/// The name by which an item is known in its module.
fn own_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

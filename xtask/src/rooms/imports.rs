//! The paths that a crate's files name: in `use`, in code, and in the tokens of macros.

use super::modules::{Crate, only_for_tests};
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Stmt, TraitItem, UseTree};

/// A path that a file names.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) file: String,
    /// Of the file that names it.
    pub(crate) room: String,
    pub(crate) line: usize,
    /// From the crate's root, without `crate`.
    pub(crate) path: Vec<String>,
    /// All that is there.
    glob: bool,
}

impl Import {
    /// As one would write it.
    pub(crate) fn written(&self) -> String {
        let glob = if self.glob { "::*" } else { "" };
        let segments = self.path.iter().map(|segment| format!("::{segment}"));
        format!("crate{}{glob}", segments.collect::<String>())
    }
}

/// All that the files of `tree` name, as far as it starts at `crate`, `self` or `super`.
pub(crate) fn all(tree: &Crate) -> Vec<Import> {
    let mut imports = Vec::new();
    for file in &tree.files {
        let mut reader = Reader {
            file: &file.name,
            room: file.room(),
            module: file.module.clone(),
            imports: &mut imports,
        };
        file.items.iter().for_each(|item| reader.visit_item(item));
    }
    imports
}

/// What one `use` names, one leaf at a time.
pub(crate) struct Leaf {
    /// As written, from the first segment on; never empty.
    pub(crate) path: Vec<String>,
    /// What it is called here; `None` for `*`.
    pub(crate) name: Option<String>,
    span: Span,
}

/// The leaves of a `use`. One that names another crate by `::` is not different here: no room's
/// path is written so.
pub(crate) fn leaves(tree: &UseTree) -> Vec<Leaf> {
    let mut found = Vec::new();
    collect(tree, &mut Vec::new(), &mut found);
    found
}

fn collect(tree: &UseTree, prefix: &mut Vec<String>, found: &mut Vec<Leaf>) {
    let mut leaf = |ident: &syn::Ident, name: &syn::Ident| {
        let mut path = prefix.clone();
        // In `a::{self}` it is `a` that is named.
        if ident != "self" || path.is_empty() {
            path.push(ident.to_string());
        }
        let name = if name == "self" { path.last().cloned() } else { Some(name.to_string()) };
        found.push(Leaf { path, name, span: ident.span() });
    };
    match tree {
        UseTree::Name(name) => leaf(&name.ident, &name.ident),
        UseTree::Rename(rename) => leaf(&rename.ident, &rename.rename),
        UseTree::Glob(glob) if !prefix.is_empty() => {
            let span = glob.star_token.spans[0];
            found.push(Leaf { path: prefix.clone(), name: None, span });
        }
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            collect(&path.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|item| collect(item, prefix, found));
        }
        // `use *`, which does not compile.
        UseTree::Glob(_) => {}
    }
}

pub(crate) fn is_keyword(segment: &str) -> bool {
    matches!(segment, "crate" | "self" | "super")
}

/// The path from the crate's root, if `path` starts at a keyword and stays in the crate.
pub(crate) fn absolute(module: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut at = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        _ => return None,
    };
    let mut rest = path;
    while let Some((first, behind)) = rest.split_first().filter(|(first, _)| is_keyword(first)) {
        if first == "super" {
            at.pop()?;
        }
        rest = behind;
    }
    at.extend_from_slice(rest);
    Some(at)
}

struct Reader<'a> {
    file: &'a str,
    room: &'a str,
    /// Where the reader is.
    module: Vec<String>,
    imports: &'a mut Vec<Import>,
}

impl Reader<'_> {
    fn add(&mut self, path: &[String], glob: bool, span: Span) {
        let Some(path) = absolute(&self.module, path) else { return };
        let (file, room) = (self.file.to_owned(), self.room.to_owned());
        self.imports.push(Import { file, room, line: span.start().line, path, glob });
    }

    /// Reads tokens whose syntax is not known: every `crate::`, `self::` or `super::` starts a
    /// path.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) if is_keyword(&ident.to_string()) => {
                    at = self.path_in(&tokens, at, &[]);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Reads a path, or a `use` with groups, that starts at `at`; returns where it ends.
    fn path_in(&mut self, tokens: &[TokenTree], mut at: usize, prefix: &[String]) -> usize {
        let mut path = prefix.to_vec();
        let mut span = None;
        loop {
            match tokens.get(at) {
                Some(TokenTree::Ident(ident)) => {
                    path.push(ident.to_string());
                    span = Some(ident.span());
                }
                Some(TokenTree::Punct(star)) if star.as_char() == '*' && path.len() > 1 => {
                    self.add(&path, true, star.span());
                    return at + 1;
                }
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    let comma = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ',');
                    for piece in inner.split(comma).filter(|piece| !piece.is_empty()) {
                        self.path_in(piece, 0, &path);
                    }
                    return at + 1;
                }
                _ => break,
            }
            at += 1;
            let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
            if !(colon(at) && colon(at + 1)) {
                break;
            }
            at += 2;
        }
        // A keyword alone is a value, a visibility, or nothing that names another room.
        if let Some(span) = span.filter(|_| path.len() > 1) {
            self.add(&path, false, span);
        }
        at
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !only_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !only_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let attributes: &[Attribute] = match item {
            TraitItem::Const(item) => &item.attrs,
            TraitItem::Fn(item) => &item.attrs,
            TraitItem::Type(item) => &item.attrs,
            TraitItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !only_for_tests(attributes) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        let for_tests = match stmt {
            Stmt::Local(local) => only_for_tests(&local.attrs),
            Stmt::Macro(stmt) => only_for_tests(&stmt.attrs),
            Stmt::Item(_) | Stmt::Expr(..) => false,
        };
        if !for_tests {
            visit::visit_stmt(self, stmt);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for leaf in leaves(&item.tree) {
            self.add(&leaf.path, leaf.name.is_none(), leaf.span);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path.leading_colon.is_none() && segments.len() > 1 {
            self.add(&segments, false, path.segments[0].ident.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        visit::visit_macro(self, mac);
        self.tokens(mac.tokens.clone());
    }

    // Neither says what the code uses: `pub(in crate::zone)` names a room around it, and an
    // attribute is a comment or names no path of the crate.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// The attributes of an item.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

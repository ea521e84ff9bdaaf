//! That the functions of a path are where the list says, and call each other.

use super::{Function, Path};
use crate::rooms::modules::only_for_tests;
use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, FnArg, Signature, Type, TypeParamBound};

/// What is wrong: a function that is not in its file, or that none before it on the path calls by
/// its name. The caller need not be the line above: where that one runs a closure, the call is in
/// the function that wrote the closure.
pub(super) fn check(path: &Path, read: impl Fn(&str) -> Option<String>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut called = BTreeSet::new();
    for (at, Function { name, file }) in path.iter().enumerate() {
        let Some(text) = read(file) else {
            found.push(format!("there is no file {file}"));
            continue;
        };
        let parsed = syn::parse_file(&text).with_context(|| file.clone())?;
        let mut bodies = Bodies { name, there: false, runs: false, calls: BTreeSet::new() };
        bodies.visit_file(&parsed);
        if !bodies.there {
            found.push(format!("there is no function `{name}` in {file}"));
        } else if at > 0 && !called.contains(name) {
            found.push(format!("no function listed before `{name}` calls it"));
        } else if path[at].is_bracket() && !bodies.runs {
            found.push(format!("`{name}` takes no closure: it is no bracket"));
        }
        called.extend(bodies.calls);
    }
    Ok(found)
}

/// Collects what the functions of one name call.
struct Bodies<'n> {
    name: &'n str,
    there: bool,
    /// Whether it takes a closure.
    runs: bool,
    calls: BTreeSet<String>,
}

impl Bodies<'_> {
    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: Option<&Block>) {
        if signature.ident == self.name && !only_for_tests(attributes) {
            self.there = true;
            self.runs |= signature.inputs.iter().any(is_closure);
            if let Some(body) = body {
                Calls(&mut self.calls).visit_block(body);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Bodies<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !only_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, Some(&item.block));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, Some(&item.block));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.attrs, &item.sig, item.default.as_ref());
        visit::visit_trait_item_fn(self, item);
    }
}

/// Whether a parameter is `impl Fn…`.
fn is_closure(parameter: &FnArg) -> bool {
    let FnArg::Typed(parameter) = parameter else { return false };
    let Type::ImplTrait(bounds) = &*parameter.ty else { return false };
    bounds.bounds.iter().any(|bound| match bound {
        TypeParamBound::Trait(bound) => {
            bound.path.segments.last().is_some_and(|name| name.ident.to_string().starts_with("Fn"))
        }
        _ => false,
    })
}

/// The names of all that is called, or named as a function to be called.
struct Calls<'c>(&'c mut BTreeSet<String>);

impl Calls<'_> {
    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) => drop(self.0.insert(ident.to_string())),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Calls<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.0.insert(call.method.to_string());
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        self.0.extend(path.path.segments.last().map(|segment| segment.ident.to_string()));
        visit::visit_expr_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.tokens(mac.tokens.clone());
    }
}

//! A planted document, source and stacks; and each way in which they can differ.

use super::*;

const DOCUMENT_TEXT: &str = "\
# Paths

```text path=miss
alloc  alloc/allocator.rs  the way in
refill pcp/linked.rs
hold   zone/instance.rs    runs the closure of `refill`
take   zone/buddy.rs
```

```text path=free
```
";

const LIMIT: Limit = Limit { name: "miss", functions: 4, files: 4 };

const STACKS: &str = "\
miss read alloc alloc/allocator.rs check alloc/allocator.rs more zone/instance.rs a zone/a.rs b zone/b.rs
miss write alloc alloc/allocator.rs refill pcp/linked.rs note pcp/linked.rs n pcp/linked.rs n pcp/n.rs
miss write alloc alloc/allocator.rs enter platform/slot.rs refill pcp/linked.rs hold zone/instance.rs
miss write alloc alloc/allocator.rs enter platform/slot.rs refill pcp/linked.rs hold zone/instance.rs take zone/buddy.rs set frame/table.rs
free write free_block alloc/free.rs";

fn source(file: &str) -> Option<String> {
    let text = match file {
        "alloc/allocator.rs" => "impl A { pub fn alloc(&self) { enter(|own| P::refill(own)) } }",
        "pcp/linked.rs" => {
            "trait P { fn refill(o: O); } impl P for L { fn refill(o: O) { o.zone.hold(|b| \
             if let Some(x) = b.take() { assert!(b.in_macro()) }) } } fn in_macro() {}"
        }
        "zone/instance.rs" => {
            "mod inner { fn hold(f: F) { f() } } #[cfg(test)] mod t { fn take() {} }"
        }
        "zone/buddy.rs" => "fn take() {} #[cfg(test)] fn only_in_tests() {} fn lonely() {}",
        _ => return None,
    };
    Some(text.to_owned())
}

fn path(lines: &[&str]) -> Path {
    let document = format!("{FENCE}x\n{}\n```\n", lines.join("\n"));
    super::listed(&document, "x").unwrap()
}

fn found(lines: &[&str]) -> Vec<String> {
    calls::check(&path(lines), source).unwrap()
}

#[test]
fn what_is_listed_is_what_happens() {
    let listed = listed(DOCUMENT_TEXT, "miss").unwrap();
    assert_eq!(listed.len(), 4);
    assert_eq!(LIMIT.check(&listed), [""; 0]);
    assert_eq!(calls::check(&listed, source).unwrap(), [""; 0]);
    let seen = longest(STACKS, "miss").unwrap();
    assert_eq!(seen.as_slice(), std::slice::from_ref(&listed));
    assert_eq!(compare(&listed, &seen), None);
}

#[test]
fn a_list_that_stops_early_or_leaves_something_out_is_found() {
    let listed = listed(DOCUMENT_TEXT, "miss").unwrap();
    let seen = longest(STACKS, "miss").unwrap();
    for gone in 0..listed.len() {
        let mut shorter = listed.clone();
        shorter.remove(gone);
        assert!(compare(&shorter, &seen).is_some(), "without {}", listed[gone]);
    }
}

#[test]
fn long_paths_and_files_that_come_back_are_found() {
    let lines = ["a x.rs", "b x.rs", "c y.rs", "d x.rs", "e z.rs", "f y.rs"];
    let limit = Limit { name: "x", functions: 5, files: 2 };
    assert_eq!(
        limit.check(&path(&lines)),
        [
            "6 functions, more than 5",
            "3 files, more than 2",
            "`d` comes back to x.rs",
            "`f` comes back to y.rs"
        ]
    );
    assert_eq!(limit.check(&path(&["a x.rs", "b x.rs", "c x.rs", "d y.rs"])), [""; 0]);
}

#[test]
fn functions_that_are_not_there_or_not_called_are_found() {
    let first = "alloc alloc/allocator.rs";
    assert_eq!(found(&[first, "alloc gone.rs"]), ["there is no file gone.rs"]);
    for name in ["gone", "only_in_tests"] {
        let line = format!("{name} zone/buddy.rs");
        let says = format!("there is no function `{name}` in zone/buddy.rs");
        assert_eq!(found(&[first, line.as_str()]), [says]);
    }
    // `take` of a test is no function of that file.
    let says = "there is no function `take` in zone/instance.rs";
    assert_eq!(found(&[first, "refill pcp/linked.rs", "take zone/instance.rs"]), [says]);
    let says = "no function listed before `lonely` calls it";
    assert_eq!(found(&[first, "lonely zone/buddy.rs"]), [says]);
    let says = "no function listed before `take` calls it";
    assert_eq!(found(&[first, "take zone/buddy.rs", "refill pcp/linked.rs"]), [says]);
    assert_eq!(found(&[first, "refill pcp/linked.rs", "in_macro pcp/linked.rs"]), [""; 0]);
}

#[test]
fn documents_without_a_list_are_refused() {
    for (document, says) in [
        ("", "has no block"),
        (DOCUMENT_TEXT, "is empty"),
        ("```text path=free\na b.rs\n", "does not end"),
        ("```text path=free\na\n```\n", "is not FUNCTION FILE"),
    ] {
        let error = listed(document, "free").unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn stacks_without_a_way_to_the_free_memory_are_refused() {
    for stacks in [STACKS, "", "free read free_block zone/buddy.rs", "free write free_block"] {
        assert!(longest(stacks, "free").is_err(), "{stacks}");
    }
}

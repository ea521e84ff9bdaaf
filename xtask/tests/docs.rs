//! What a reader of the documentation relies on: the README is short, its programs are those that
//! are compiled, every page is in the book's table of contents, links lead somewhere, and texts,
//! comments and messages name who acts.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

type Test = Result<(), Box<dyn Error>>;

/// Seven KiB: what can be read before a decision whether to read on.
const README_BYTES: usize = 7 << 10;

/// Where files of the repository are on a server: the READMEs of the crates are read elsewhere.
const REPOSITORY: &str = "https://github.com/zonal-rs/zonal/blob/main/";

/// Words that hide who acts or how many.
const VAGUE: [&str; 4] = ["whoever", "nobody", "somebody", "so many"];

/// This file.
const OWN: &str = "xtask/tests/docs.rs";

/// The workspace's directory.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: impl AsRef<Path>) -> Result<String, String> {
    let path = root().join(path);
    fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))
}

/// The Markdown files of a directory, by their paths in the repository.
fn pages(dir: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(root().join(dir))? {
        let name = entry?.file_name().into_string().map_err(|name| format!("{name:?}"))?;
        if name.ends_with(".md") {
            pages.push(format!("{dir}/{name}"));
        }
    }
    pages.sort_unstable();
    Ok(pages)
}

/// The pages that users read, and those of the decisions.
fn all_pages() -> Result<Vec<String>, Box<dyn Error>> {
    let mut all: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(Into::into).into();
    all.extend(pages("docs/book/src")?);
    all.extend(pages("docs/adr")?);
    for entry in fs::read_dir(root().join("crates"))? {
        let name = entry?.file_name().into_string().map_err(|name| format!("{name:?}"))?;
        let readme = format!("crates/{name}/README.md");
        // A crate that is not published may do without: `cargo xtask package` asks the others.
        if root().join(&readme).exists() {
            all.push(readme);
        }
    }
    Ok(all)
}

/// The sources of Rust, by their paths in the repository.
fn all_sources() -> Result<Vec<String>, Box<dyn Error>> {
    let (mut dirs, mut sources) =
        (["crates", "kernel", "xtask", "fuzz"].map(String::from).to_vec(), vec![]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(root().join(&dir))? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|name| format!("{name:?}"))?;
            let path = format!("{dir}/{name}");
            if entry.file_type()?.is_dir() {
                // What is built is not written here.
                dirs.extend((name != "target").then_some(path));
            } else if name.ends_with(".rs") {
                sources.push(path);
            }
        }
    }
    Ok(sources)
}

/// The comments of a source, a line each: what stands behind two slashes that no colon precedes, as it does
/// in an address.
fn comments(source: &str) -> String {
    let comment = |line: &str| {
        let start =
            line.match_indices("//").map(|(at, _)| at).find(|&at| !line[..at].ends_with(':'))?;
        Some(line[start..].trim_start_matches(['/', '!']).to_owned() + "\n")
    };
    source.lines().filter_map(comment).collect()
}

/// The vague words of a text. A phrase may go on in the next line.
fn vague(text: &str) -> impl Iterator<Item = &'static str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ").to_lowercase();
    VAGUE.into_iter().filter(move |word| text.contains(word))
}

/// Lines that are not part of a block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Where the links of a page lead.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let of_line = |line| str::split(line, "](").skip(1);
    prose(text).flat_map(of_line).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link)
}

/// What a heading is called in a link: letters, digits and dashes.
fn anchor(heading: &str) -> String {
    let lower = heading.trim().to_lowercase().replace(' ', "-");
    lower.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

fn has_anchor(text: &str, wanted: &str) -> bool {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).any(|it| it == wanted)
}

/// Why a link of a page leads nowhere, if that is so. Links to other servers are not followed.
fn broken(page: &str, text: &str, link: &str) -> Option<String> {
    let (path, base) = match link.strip_prefix(REPOSITORY) {
        Some(path) => (path, root()),
        None if link.contains("://") => return None,
        None => (link, root().join(page).parent()?.to_path_buf()),
    };
    let (path, heading) = path.split_once('#').map_or((path, None), |(p, h)| (p, Some(h)));
    let target = base.join(path);
    if !path.is_empty() && !target.exists() {
        return Some(format!("{page}: {link}: there is no {path}"));
    }
    let heading = heading?;
    let other = if path.is_empty() { text.to_owned() } else { fs::read_to_string(&target).ok()? };
    (!has_anchor(&other, heading)).then(|| format!("{page}: {link}: there is no such heading"))
}

#[test]
fn the_readme_is_at_most_seven_kib() -> Test {
    let bytes = read("README.md")?.len();
    assert!(bytes <= README_BYTES, "README.md has {bytes} bytes: move some of them to the book");
    Ok(())
}

#[test]
fn the_programs_of_the_readme_are_the_examples() -> Test {
    let readme = read("README.md")?;
    let programs = readme.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
    let programs: Vec<&str> = programs.collect();
    let examples = ["crates/zonal/examples/kernel.rs", "crates/zonal-host/examples/page_pool.rs"];
    assert_eq!(programs.len(), examples.len());
    for (program, example) in programs.into_iter().zip(examples) {
        let source = read(example)?;
        assert!(
            source.ends_with(program),
            "README.md shows another program than {example}:\n{source}"
        );
    }
    Ok(())
}

#[test]
fn every_page_of_the_book_is_in_its_contents() -> Test {
    let dir = "docs/book/src";
    let summary = read(format!("{dir}/SUMMARY.md"))?;
    let listed: BTreeSet<String> = links(&summary).map(|page| format!("{dir}/{page}")).collect();
    let mut there: BTreeSet<String> = pages(dir)?.into_iter().collect();
    there.remove(&format!("{dir}/SUMMARY.md"));
    assert_eq!(listed, there);
    Ok(())
}

#[test]
fn links_resolve() -> Test {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in all_pages()? {
        let text = read(&page)?;
        seen += links(&text).count();
        wrong.extend(links(&text).filter_map(|link| broken(&page, &text, link)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "only {seen} links were found");
    Ok(())
}

/// Names of models that stand in a text, as `loom_map.rs` does.
fn models_named(text: &str) -> BTreeSet<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.');
    let model = |word: &&str| {
        let kind = word.starts_with("loom_") || word.starts_with("shuttle_");
        kind && word.ends_with(".rs")
    };
    text.split(word).filter(model).map(String::from).collect()
}

/// And no model is without a bug that it must find.
#[test]
fn every_model_is_on_the_page_about_safety() -> Test {
    let mut there = BTreeSet::new();
    for source in all_sources()? {
        let Some((dir, name)) = source.rsplit_once('/') else { continue };
        if dir.ends_with("/tests") && models_named(name).contains(name) {
            assert!(read(&source)?.contains("anary"), "{source} has no canary");
            there.insert(name.to_owned());
        }
    }
    assert!(there.len() > 15, "{there:?}");
    assert_eq!(models_named(&read("docs/book/src/safety.md")?), there);
    Ok(())
}

#[test]
fn a_model_that_is_named_is_found() {
    let named = models_named("| of it | `testkit/tests/loom_a_1.rs`, [`shuttle_b.rs`](x) loom_c |");
    assert_eq!(named, ["loom_a_1.rs", "shuttle_b.rs"].map(String::from).into());
}

#[test]
fn the_text_says_who_acts() -> Test {
    let mut texts = Vec::new();
    for page in all_pages()? {
        texts.push((read(&page)?, page));
    }
    let sources = all_sources()?;
    assert!(sources.len() > 300, "only {} sources were found", sources.len());
    for source in sources {
        let text = read(&source)?;
        // Here the words themselves stand.
        let text = if source == OWN { comments(&text) } else { text };
        texts.push((text, source));
    }
    let found: Vec<_> = texts
        .iter()
        .flat_map(|(text, name)| vague(text).map(move |word| format!("{name} says \"{word}\"")))
        .collect();
    assert!(found.is_empty(), "name the actor or the number:\n{}", found.join("\n"));
    Ok(())
}

#[test]
fn a_vague_comment_is_found() {
    let [code, first, last, over_two_lines] = VAGUE;
    let source = format!(
        "//! {first},\nlet url = \"https://{code}\"; // so\n    /// many\n{code}();\ncall(); // or {last}\n"
    );
    let found: Vec<_> = vague(&comments(&source)).collect();
    assert_eq!(found, [first, last, over_two_lines]);
    assert_eq!(vague("Nowhere so\nlong").count(), 0);
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text = "# One heading\n[a](#one-heading) [b](#another) [c](missing.md)\n\
                ```text\n[code](missing.md)\n```\n[d](../LICENSE-MIT)";
    let wrong: Vec<_> = links(text).filter_map(|link| broken("docs/x.md", text, link)).collect();
    assert_eq!(
        wrong,
        [
            "docs/x.md: #another: there is no such heading",
            "docs/x.md: missing.md: there is no missing.md"
        ]
    );
}

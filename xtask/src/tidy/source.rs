//! A Rust file, taken apart as far as the rules need it.
//!
//! Tokens, not a syntax tree: comments and strings cannot be mistaken for code, macros are seen
//! through, and xtask builds in seconds. The price is that an item's end is found by its first
//! braces or semicolon, which rustfmt'd code never disappoints.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

#[derive(Debug)]
pub struct Source {
    /// From the root of the repository, with slashes.
    pub path: String,
    pub text: String,
    /// Every path in code, imports spelled out: `std::fs::read`, `HashMap`, `todo!`.
    pub names: Vec<Spot>,
    /// Contents of string literals, documentation aside.
    pub strings: Vec<Spot>,
    /// Attributes without their brackets and spaces: `ignore="slow"`.
    pub attributes: Vec<Spot>,
    pub functions: Vec<Function>,
    pub items: Vec<Item>,
    test_lines: Vec<RangeInclusive<usize>>,
}

/// Some text and the line where it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    pub text: String,
    pub line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    /// The lines between its braces, and how many stand before them.
    pub body_lines: usize,
    pub body_from: usize,
}

/// An item of the file's own level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The word that makes it what it is: `use`, `fn`, `struct`.
    pub keyword: String,
    pub line: usize,
    pub has_body: bool,
}

impl Source {
    pub fn parse(path: &str, text: &str) -> Result<Source, String> {
        let stream: TokenStream = text.parse().map_err(|why| format!("{why}"))?;
        let mut source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
            names: Vec::new(),
            strings: Vec::new(),
            attributes: Vec::new(),
            functions: Vec::new(),
            items: Vec::new(),
            test_lines: Vec::new(),
        };
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        source.items = items(&trees);
        source.walk(&trees);
        if is_test_file(path) {
            source.test_lines.push(1..=usize::MAX);
        }
        Ok(source)
    }

    /// Whether a line belongs to tests.
    pub fn is_test(&self, line: usize) -> bool {
        self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// Whether the file belongs to a crate of Kapelle, by its folder: `core`.
    pub fn is_of_crate(&self, name: &str) -> bool {
        self.path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()) == Some(name)
    }

    fn walk(&mut self, trees: &[TokenTree]) {
        let mut at = 0;
        while at < trees.len() {
            at += match &trees[at] {
                TokenTree::Punct(mark) if mark.as_char() == '#' => self.attribute(trees, at),
                TokenTree::Ident(word) if word == "use" => self.import(trees, at),
                TokenTree::Ident(word) => {
                    if word == "fn" {
                        self.functions.extend(function(trees, at));
                    }
                    self.name(trees, at)
                }
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    if text.ends_with(['"', '#']) {
                        let line = literal.span().start().line;
                        self.strings.push(Spot { text: unquoted(&text), line });
                    }
                    1
                }
                TokenTree::Group(group) => {
                    self.walk(&content(group));
                    1
                }
                TokenTree::Punct(_) => 1,
            };
        }
    }

    /// `#[…]` or `#![…]`; returns how many trees it takes.
    fn attribute(&mut self, trees: &[TokenTree], at: usize) -> usize {
        let is_inner =
            matches!(trees.get(at + 1), Some(TokenTree::Punct(mark)) if mark.as_char() == '!');
        let length = if is_inner { 3 } else { 2 };
        let Some(TokenTree::Group(group)) = trees.get(at + length - 1) else { return 1 };
        if group.delimiter() != Delimiter::Bracket {
            return 1;
        }
        let text: String = group.stream().to_string().split_whitespace().collect();
        if text.starts_with("doc=") {
            return length;
        }
        let line = line_of(&trees[at]);
        if is_test_attribute(&text) {
            let last = if is_inner { usize::MAX } else { end_of_item(trees, at) };
            self.test_lines.push(line..=last);
        }
        self.attributes.push(Spot { text, line });
        length
    }

    /// `use …;`, spelled out path by path; returns how many trees it takes.
    fn import(&mut self, trees: &[TokenTree], at: usize) -> usize {
        let length = trees[at..].iter().take_while(|tree| !is_mark(tree, ';')).count();
        let parts = &trees[at + 1..at + length];
        // `impl Trait + use<'a>` is no import.
        if parts.first().is_some_and(|tree| is_mark(tree, '<')) {
            return 1;
        }
        spell_out("", parts, &mut self.names);
        length
    }

    /// A path such as `a::b::c`, with a `!` if it is a macro; returns how many trees it takes.
    fn name(&mut self, trees: &[TokenTree], at: usize) -> usize {
        let mut text = trees[at].to_string();
        let mut length = 1;
        while let [colon, colon_too, TokenTree::Ident(word), ..] = &trees[at + length..]
            && is_mark(colon, ':')
            && is_mark(colon_too, ':')
        {
            text.push_str(&format!("::{word}"));
            length += 3;
        }
        let is_macro =
            matches!(&trees[at + length..], [mark, TokenTree::Group(_), ..] if is_mark(mark, '!'));
        if is_macro {
            text.push('!');
        }
        self.names.push(Spot { text, line: line_of(&trees[at]) });
        length
    }
}

/// Appends every path of a use tree, each with its prefix.
fn spell_out(prefix: &str, parts: &[TokenTree], names: &mut Vec<Spot>) {
    for branch in parts.split(|tree| is_mark(tree, ',')) {
        let mut path = prefix.to_owned();
        for tree in branch {
            match tree {
                // What it is called here does not change what it is.
                TokenTree::Ident(word) if word == "as" => break,
                TokenTree::Ident(word) => {
                    if !path.is_empty() {
                        path.push_str("::");
                    }
                    path.push_str(&word.to_string());
                }
                TokenTree::Group(group) => spell_out(&path, &content(group), names),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        let ends_in_group = matches!(branch.last(), Some(TokenTree::Group(_)));
        if let Some(first) = branch.first().filter(|_| !ends_in_group) {
            names.push(Spot { text: path, line: line_of(first) });
        }
    }
}

/// `fn name … { … }`; nothing for `fn(…)` types and for functions without a body.
fn function(trees: &[TokenTree], at: usize) -> Option<Function> {
    let TokenTree::Ident(name) = trees.get(at + 1)? else { return None };
    let end = trees[at..].iter().find(|tree| is_mark(tree, ';') || braces(tree).is_some())?;
    let body = braces(end)?;
    let (open, close) = (body.span_open().start().line, body.span_close().start().line);
    Some(Function {
        name: name.to_string(),
        line: line_of(&trees[at]),
        body_lines: close.saturating_sub(open + 1),
        body_from: open,
    })
}

fn items(trees: &[TokenTree]) -> Vec<Item> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < trees.len() {
        match &trees[at] {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                at += if is_mark(&trees[(at + 1).min(trees.len() - 1)], '!') { 3 } else { 2 };
            }
            TokenTree::Ident(word) if word == "pub" => {
                let has_scope = matches!(trees.get(at + 1), Some(TokenTree::Group(_)));
                at += if has_scope { 2 } else { 1 };
            }
            TokenTree::Ident(word) => {
                let keyword = word.to_string();
                // The braces of `use a::{b, c};` are no body.
                let is_end = |tree: &&TokenTree| {
                    is_mark(tree, ';') || keyword != "use" && braces(tree).is_some()
                };
                let rest = &trees[at..];
                let length = rest.iter().position(|tree| is_end(&tree)).unwrap_or(rest.len() - 1);
                let has_body = braces(&rest[length]).is_some();
                found.push(Item { keyword, line: line_of(&trees[at]), has_body });
                at += length + 1;
            }
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
        }
    }
    found
}

/// The last line of the item that starts with the attribute at `at`.
fn end_of_item(trees: &[TokenTree], at: usize) -> usize {
    let end = trees[at..].iter().find(|tree| is_mark(tree, ';') || braces(tree).is_some());
    end.or(trees.last()).map_or(usize::MAX, |tree| tree.span().end().line)
}

/// `cfg(test)`, `cfg(all(test, …))`, `test`, `tokio::test(…)`; not `cfg(not(test))`.
fn is_test_attribute(text: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
    };
    if let Some(condition) = text.strip_prefix("cfg(") {
        let words = words(condition);
        return words.iter().any(|word| word == "test") && !words.iter().any(|word| word == "not");
    }
    let path = text.split(['(', '=']).next().unwrap_or_default();
    path == "test" || path.ends_with("::test")
}

/// Whole files of tests, by where they are: Cargo's folders, and `mod tests;` beside its parent.
fn is_test_file(path: &str) -> bool {
    let mut parts = path.split('/').rev();
    let name = parts.next().unwrap_or_default();
    name == "tests.rs" || parts.any(|folder| matches!(folder, "tests" | "benches"))
}

fn is_mark(tree: &TokenTree, mark: char) -> bool {
    matches!(tree, TokenTree::Punct(found) if found.as_char() == mark)
}

fn braces(tree: &TokenTree) -> Option<&Group> {
    match tree {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
        TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {
            None
        }
    }
}

fn content(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

fn line_of(tree: &TokenTree) -> usize {
    tree.span().start().line
}

fn unquoted(literal: &str) -> String {
    let start = literal.find('"').map_or(0, |at| at + 1);
    let end = literal.rfind('"').unwrap_or(literal.len());
    literal.get(start..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Source {
        Source::parse("crates/core/src/x.rs", text).unwrap()
    }

    fn texts(spots: &[Spot]) -> Vec<&str> {
        spots.iter().map(|spot| spot.text.as_str()).collect()
    }

    #[test]
    fn imports_are_spelled_out() {
        let source = parse("use std::{fs, net::{TcpStream, *}, io as files};\npub use a::b;");
        let expected = ["std::fs", "std::net::TcpStream", "std::net", "std::io", "pub", "a::b"];
        assert_eq!(texts(&source.names), expected);
    }

    #[test]
    fn code_inside_macros_is_seen_and_comments_and_strings_are_not() {
        let source =
            parse("/// std::fs\nfn f() { println!(\"std::net\", std::env::vars()); } // todo!");
        assert_eq!(texts(&source.names), ["fn", "f", "println!", "std::env::vars"]);
        assert_eq!(texts(&source.strings), ["std::net"]);
    }

    #[test]
    fn tests_are_told_from_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n#[cfg(not(test))]\nfn d() {}";
        let source = parse(text);
        let test_lines: Vec<usize> = (1..=8).filter(|line| source.is_test(*line)).collect();
        assert_eq!(test_lines, [2, 3, 4, 5]);
        assert!(Source::parse("crates/cli/tests/demo.rs", "fn a() {}").unwrap().is_test(1));
        assert!(Source::parse("crates/cli/src/tests.rs", "fn a() {}").unwrap().is_test(1));
    }

    #[test]
    fn functions_are_measured_wherever_they_are() {
        let source =
            parse("impl A {\n  fn a(x: fn(u8)) -> u8 {\n    1\n  }\n}\ntrait B { fn b(); }");
        let a = Function { name: "a".into(), line: 2, body_lines: 1, body_from: 2 };
        assert_eq!(source.functions, [a]);
    }

    #[test]
    fn items_are_listed_with_their_kind() {
        let source = parse(
            "#![deny(x)]\n//! Doc.\npub(crate) mod a;\npub use a::{b, c};\nmod d {}\nfn e() {}",
        );
        let item = |keyword: &str, line, has_body| Item { keyword: keyword.into(), line, has_body };
        let expected = [
            item("mod", 3, false),
            item("use", 4, false),
            item("mod", 5, true),
            item("fn", 6, true),
        ];
        assert_eq!(source.items, expected);
    }
}

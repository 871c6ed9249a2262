//! Tests that replace what they test by a mock pass whatever the code does (SEC-09).
//!
//! Looks for the well-known calls that replace a module or a name of it, and compares what they
//! name with the files that the task is about. It reads lines, not languages: what is built at run
//! time is not seen, and a mock of anything else is nobody's business.

use serde::{Deserialize, Serialize};

use super::objection::Objection;
use crate::limits;

/// A place in a test file that replaces a unit under test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mock {
    /// The test file.
    pub path: String,
    pub line: u32,
    pub unit: String,
}

/// The test files that a task has touched, and the files that it is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tested {
    pub tests: Vec<String>,
    pub units: Vec<String>,
}

/// What starts a replacement; the text in quotes behind it says of what.
const CALLS: [&str; 12] = [
    "jest.mock(",
    "jest.doMock(",
    "jest.unstable_mockModule(",
    "vi.mock(",
    "vi.doMock(",
    "mock.module(",
    "mock.patch(",
    "mocker.patch(",
    "@patch(",
    "= patch(",
    "with patch(",
    "monkeypatch.setattr(",
];

/// The replaced units of one test file. `units` are the paths of the files under test.
#[must_use]
pub fn mocked_units(test_path: &str, text: &str, units: &[String]) -> Vec<Mock> {
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1_u32..) {
        for call in CALLS {
            let Some(at) = line.find(call) else { continue };
            let Some(target) = quoted(&line[at + call.len()..]) else { continue };
            let unit = units.iter().find(|unit| means(test_path, target, unit));
            let (path, line) = (test_path.to_owned(), number);
            found.extend(unit.map(|unit| Mock { path, line, unit: unit.clone() }));
        }
        if found.len() >= limits::OBJECTIONS_MAX {
            break;
        }
    }
    found
}

impl Mock {
    #[must_use]
    pub fn objection(&self) -> Objection {
        let Mock { path, line, unit } = self.clone();
        Objection::MocksItsUnit { path, line, unit }
    }

    /// As a journal keeps it.
    #[must_use]
    pub fn bounded(&self) -> Mock {
        let short = |path: &str| limits::head(path, limits::PATH_CHARS_MAX).to_owned();
        Mock { path: short(&self.path), line: self.line, unit: short(&self.unit) }
    }
}

/// The text at the beginning, if it is in quotes.
fn quoted(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let quote = text.chars().next().filter(|first| ['"', '\'', '`'].contains(first))?;
    text[1..].split_once(quote).map(|(inner, _)| inner)
}

/// Whether `target`, as a test file names it, is `unit`: a path relative to the test, a path from
/// the root, or a dotted name that begins with the unit's module.
fn means(test_path: &str, target: &str, unit: &str) -> bool {
    let unit = stem(unit);
    if target.starts_with('.') {
        return resolve(test_path, target).is_some_and(|path| stem(&path) == unit);
    }
    if target.contains('/') {
        let target = stem(target.trim_start_matches(['@', '~', '/']));
        return ends_with_parts(unit, target);
    }
    let module: Vec<&str> = target.split('.').collect();
    // The last part is the replaced name, or the module itself.
    (1..=module.len()).any(|length| {
        let path = module[..length].join("/");
        ends_with_parts(unit, &path) && (length > 1 || unit == path || module.len() <= 2)
    })
}

/// Whether the last folders and the name of `path` are those of `end`.
fn ends_with_parts(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// A path without the ending of its file, and without a closing `index` or `__init__`.
fn stem(path: &str) -> &str {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let bare = name.split('.').next().unwrap_or(name);
    if (bare == "index" || bare == "__init__") && !folder.is_empty() {
        return folder;
    }
    &path[..path.len() - name.len() + bare.len()]
}

/// A relative path as seen from a file; nothing if it leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(path: &str, text: &str) -> Vec<(u32, String)> {
        let units =
            ["src/basket.ts".to_owned(), "shop/prices.py".to_owned(), "lib/index.js".into()];
        let found = mocked_units(path, text, &units).into_iter();
        found.map(|mock| (mock.line, mock.unit)).collect()
    }

    #[test]
    fn a_mock_of_the_unit_under_test_is_found() {
        let found = [
            ("tests/basket.test.ts", "jest.mock('../src/basket');", "src/basket.ts"),
            ("src/basket.test.ts", "  vi.mock(\"./basket.ts\", () => ({}))", "src/basket.ts"),
            ("tests/a.test.js", "jest.mock('../lib')", "lib/index.js"),
            ("tests/test_a.py", "@patch('shop.prices.total')", "shop/prices.py"),
            ("tests/test_a.py", "with mock.patch(\"shop.prices\"):", "shop/prices.py"),
            ("tests/test_a.py", "monkeypatch.setattr('prices.total', f)", "shop/prices.py"),
            ("tests/b.test.ts", "jest.mock('@/src/basket')", "src/basket.ts"),
        ];
        for (path, text, unit) in found {
            let text = format!("first line\n{text}\n");
            assert_eq!(units(path, &text), [(2, unit.to_owned())], "{text}");
        }
    }

    /// Mocks of what surrounds the unit are what mocks are for.
    #[test]
    fn other_mocks_are_let_alone() {
        let other = [
            "jest.mock('../src/network');",
            "jest.mock('../../../src/basket');",
            "@patch('shop.network.get')",
            "@patch('requests.get')",
            "jest.mock(name)",
            "jest.mock('unclosed",
            "the word basket in src/basket",
        ];
        for text in other {
            assert_eq!(units("tests/basket.test.ts", text), [], "{text}");
        }
    }

    #[test]
    fn the_objection_names_the_place() {
        let mock = Mock { path: "tests/a.ts".into(), line: 4, unit: "src/a.ts".into() };
        assert_eq!(
            mock.objection().to_string(),
            "tests/a.ts line 4 replaces src/a.ts, the very thing that it should test, by a mock"
        );
    }
}

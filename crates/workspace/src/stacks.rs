//! What a repository is made with, and how its tests are run: the proposals of `kapelle init`.
//!
//! Looks at names of files and into a few small ones, never runs anything. A proposal is for a
//! person to read and change. Commands are made for a sandbox without a network: what has to be
//! downloaded must be there already.

mod node;

use std::collections::BTreeSet;
use std::path::Path;

use kapelle_core::policy::Parser;

/// Folders below the top that are looked into: `services/shop/api`.
const DEPTH_MAX: usize = 3;

/// Folders and files that are looked at in all.
const ENTRIES_MAX: usize = 20_000;

/// What of a file is read to see what is in it.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// More than this is a collection of samples, not a project.
const STACKS_MAX: usize = 12;

/// Never ours: what tools install or build.
const FOREIGN: [&str; 12] = [
    "node_modules",
    "target",
    "vendor",
    "dist",
    "build",
    "out",
    "venv",
    "bin",
    "obj",
    "__pycache__",
    "testdata",
    "fixtures",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Rust,
    Node,
    Python,
    Go,
    Maven,
    Gradle,
    Dotnet,
    Make,
}

impl Kind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Rust => "rust",
            Kind::Node => "node",
            Kind::Python => "python",
            Kind::Go => "go",
            Kind::Maven => "maven",
            Kind::Gradle => "gradle",
            Kind::Dotnet => "dotnet",
            Kind::Make => "make",
        }
    }
}

/// A stack that was found, with the check that is proposed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    pub kind: Kind,
    /// Where, relative to the top; empty for the top itself.
    pub dir: String,
    pub check: Proposal,
    /// Patterns of the files that count as tests.
    pub tests: Vec<String>,
    /// What a sandbox usually has to be opened for.
    pub readable: Vec<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    pub name: String,
    pub command: String,
    pub parser: Parser,
    pub report: Option<String>,
}

/// A folder with the names in it.
struct Folder<'a> {
    root: &'a Path,
    dir: String,
    files: BTreeSet<String>,
    folders: BTreeSet<String>,
}

/// How the tests of a stack are run, from the folder that it lies in.
pub(crate) struct Recipe {
    pub command: String,
    pub parser: Parser,
    pub report: Option<&'static str>,
}

/// Everything that is found in a tree, the top first.
#[must_use]
pub fn detect(root: &Path) -> Vec<Stack> {
    let mut found: Vec<Stack> = Vec::new();
    let mut entries = 0;
    let mut waiting = vec![(String::new(), 0)];
    while let Some((dir, depth)) = waiting.pop() {
        let Some(folder) = Folder::list(root, dir, &mut entries) else { continue };
        for kind in folder.kinds() {
            // The parts of a workspace are tested with the whole.
            let is_part =
                found.iter().any(|above| above.kind == kind && contains(&above.dir, &folder.dir));
            if !is_part
                && found.len() < STACKS_MAX
                && let Some(stack) = folder.stack(kind)
            {
                found.push(stack);
            }
        }
        if depth < DEPTH_MAX {
            let inner = folder.folders.iter().rev();
            waiting.extend(inner.map(|name| (folder.path(name), depth + 1)));
        }
    }
    // A makefile is a stack only where nothing else says more.
    let has_other = found.iter().any(|stack| stack.kind != Kind::Make);
    found.retain(|stack| !has_other || stack.kind != Kind::Make);
    name_apart(&mut found);
    found
}

/// One check is `test`; several are named by their stack, and by their folder if need be.
fn name_apart(found: &mut [Stack]) {
    if let [only] = found {
        only.check.name = "test".into();
        return;
    }
    let kinds: Vec<Kind> = found.iter().map(|stack| stack.kind).collect();
    for stack in found {
        let same = kinds.iter().filter(|kind| **kind == stack.kind).count();
        let place: String =
            stack.dir.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        stack.check.name = match (same, place.as_str()) {
            (1, _) | (_, "") => format!("test-{}", stack.kind.name()),
            (_, place) => format!("test-{}-{place}", stack.kind.name()),
        };
    }
}

fn contains(above: &str, dir: &str) -> bool {
    above.is_empty()
        || dir == above
        || dir.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

impl<'a> Folder<'a> {
    fn list(root: &'a Path, dir: String, entries: &mut usize) -> Option<Folder<'a>> {
        let mut folder = Folder { root, files: BTreeSet::new(), folders: BTreeSet::new(), dir };
        for entry in std::fs::read_dir(root.join(&folder.dir)).ok()?.flatten() {
            *entries += 1;
            if *entries > ENTRIES_MAX {
                return None;
            }
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else {
                continue;
            };
            if kind.is_file() {
                folder.files.insert(name);
            } else if kind.is_dir() && !name.starts_with('.') && !FOREIGN.contains(&name.as_str()) {
                folder.folders.insert(name);
            }
        }
        Some(folder)
    }

    fn kinds(&self) -> Vec<Kind> {
        let has = |name: &str| self.files.contains(name);
        let ends = |end: &str| self.files.iter().any(|name| name.ends_with(end));
        let is_python = ["pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini"];
        let mut kinds = Vec::new();
        let mut add = |is_there, kind| {
            if is_there {
                kinds.push(kind);
            }
        };
        add(has("Cargo.toml"), Kind::Rust);
        add(has("package.json"), Kind::Node);
        add(is_python.iter().any(|name| has(name)) || has("requirements.txt"), Kind::Python);
        add(has("go.mod") || has("go.work"), Kind::Go);
        add(has("pom.xml"), Kind::Maven);
        let gradle = ["build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"];
        add(gradle.iter().any(|name| has(name)), Kind::Gradle);
        let dotnet = [".sln", ".slnx", ".csproj", ".fsproj", ".vbproj"];
        add(dotnet.iter().any(|end| ends(end)), Kind::Dotnet);
        add(has("Makefile") || has("makefile"), Kind::Make);
        kinds
    }

    fn stack(&self, kind: Kind) -> Option<Stack> {
        let recipe = self.recipe(kind)?;
        let (tests, readable) = habits(kind);
        let below = |path: &str| self.path(path);
        let command = match self.dir.as_str() {
            "" => recipe.command,
            dir => format!("cd {} && {}", quoted(dir), recipe.command),
        };
        Some(Stack {
            kind,
            check: Proposal {
                name: String::new(),
                command,
                parser: recipe.parser,
                report: recipe.report.map(below),
            },
            tests: tests.iter().map(|pattern| below(pattern)).collect(),
            readable: readable.to_vec(),
            dir: self.dir.clone(),
        })
    }

    fn recipe(&self, kind: Kind) -> Option<Recipe> {
        let has = |name: &str| self.files.contains(name);
        let recipe = |command: &str, parser, report| {
            Some(Recipe { command: command.to_owned(), parser, report })
        };
        match kind {
            Kind::Rust => recipe("cargo test --offline --no-fail-fast", Parser::Cargo, None),
            Kind::Node => node::recipe(&self.read("package.json")?, &self.files),
            Kind::Python if self.uses_pytest() => recipe(
                "python3 -m pytest --junitxml=kapelle-junit.xml",
                Parser::Junit,
                Some("kapelle-junit.xml"),
            ),
            Kind::Python => recipe("python3 -m unittest", Parser::ExitCode, None),
            Kind::Go => recipe("go test -json ./...", Parser::Go, None),
            Kind::Maven => {
                let program = if has("mvnw") { "./mvnw" } else { "mvn" };
                let command = format!("{program} --batch-mode --offline test");
                recipe(&command, Parser::Junit, Some("**/target/surefire-reports/TEST-*.xml"))
            }
            Kind::Gradle => {
                let program = if has("gradlew") { "./gradlew" } else { "gradle" };
                let command = format!("{program} --offline --no-daemon test");
                recipe(&command, Parser::Junit, Some("**/build/test-results/**/*.xml"))
            }
            Kind::Dotnet => recipe(
                "dotnet test --logger trx --results-directory TestResults",
                Parser::Trx,
                Some("TestResults/**/*.trx"),
            ),
            Kind::Make => {
                let text = self.read("Makefile").or_else(|| self.read("makefile"))?;
                let has_target = text.lines().any(|line| line.starts_with("test:"));
                if has_target { recipe("make test", Parser::ExitCode, None) } else { None }
            }
        }
    }

    fn uses_pytest(&self) -> bool {
        let said = ["pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "requirements.txt"];
        let says = |name: &&str| self.read(name).is_some_and(|text| text.contains("pytest"));
        let names = ["pytest.ini", "conftest.py", "requirements-dev.txt", "requirements-test.txt"];
        names.iter().any(|name| self.files.contains(*name))
            || said.iter().any(says)
            || self.folders.contains("tests")
    }

    fn read(&self, name: &str) -> Option<String> {
        use std::io::Read;
        if !self.files.contains(name) {
            return None;
        }
        let file = std::fs::File::open(self.root.join(&self.dir).join(name)).ok()?;
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    fn path(&self, name: &str) -> String {
        if self.dir.is_empty() { name.to_owned() } else { format!("{}/{name}", self.dir) }
    }
}

/// Where each keeps its tests, and what it needs to read outside of the tree.
fn habits(kind: Kind) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        Kind::Rust => (&["**/tests/**"], &["~/.cargo", "~/.rustup"]),
        Kind::Node => (&["**/*.test.*", "**/*.spec.*", "**/__tests__/**"], &["~/.npm"]),
        Kind::Python => (&["**/tests/**", "**/test_*.py", "**/*_test.py"], &[]),
        Kind::Go => (&["**/*_test.go"], &["~/go"]),
        Kind::Maven => (&["**/src/test/**"], &["~/.m2"]),
        Kind::Gradle => (&["**/src/test/**"], &["~/.gradle"]),
        Kind::Dotnet => (&["**/*.Tests/**", "**/*Tests/**"], &["~/.nuget", "~/.dotnet"]),
        Kind::Make => (&["tests/**"], &[]),
    }
}

/// A folder's name as one word of a shell.
fn quoted(dir: &str) -> String {
    let is_plain = dir.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if is_plain && !dir.starts_with('-') {
        return dir.to_owned();
    }
    format!("'./{}'", dir.replace('\'', "'\\''"))
}

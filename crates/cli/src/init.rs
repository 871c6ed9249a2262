//! `kapelle init`: a configuration to start from, with checks for what is found in the repository.

use std::io::Write;

use kapelle_core::policy::Parser;
use kapelle_workspace::stacks::{self, Stack};

use crate::args::InitArgs;
use crate::config::{Config, FILE_NAME};
use crate::output::{Exit, Problem, say};
use crate::project::Project;

const TEMPLATE: &str = include_str!("kapelle.toml");

/// What stands in the template for what is found.
const SAMPLE_CHECK: &str = "# [checks.test]\n# command = \"make test\"\n# timeout_seconds = 600\n";
const SAMPLE_TESTS: &str = "# tests = [\"tests/**\"]\n";
const SAMPLE_READABLE: &str = "# readable = [\"~/.rustup\"]\n";

pub async fn init(args: &InitArgs) -> Result<Exit, Problem> {
    let project = match Project::here().await {
        // A broken file is a reason to start over, if that is what was asked for.
        Err(problem) if problem.exit == Exit::Usage && args.force => {
            let here = std::env::current_dir().map_err(Problem::environment)?;
            let repo = kapelle_workspace::Repository::open(&here).await?;
            Project::new(repo, Config::default())
        }
        other => other?,
    };
    let path = project.repo.root().join(FILE_NAME);
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    if args.force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let stacks = stacks::detect(project.repo.root());
    let text = configuration(&stacks);
    let file = options.open(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    file.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Problem::refused(format!("{} is there already", path.display()))
                .hint("replace it with --force")
        }
        _ => Problem::environment(format!("{}: {e}", path.display())),
    })?;
    let budget = Config::default().policy().budget;
    say(format!("wrote {}", path.display()));
    for stack in &stacks {
        let place = if stack.dir.is_empty() { "." } else { &stack.dir };
        let check = &stack.check;
        say(format!(
            "found {} in {place}: [checks.{}] {}",
            stack.kind.name(),
            check.name,
            check.command
        ));
    }
    if stacks.is_empty() {
        say("found no tests that it knows how to run: say which under [checks]");
    }
    say(format!(
        "caps: {} a mission, {} reserved for each attempt; change them under [budget]",
        budget.mission_usd_max, budget.attempt_usd_max
    ));
    say("next: say which agents do the work under [roles], then `kapelle doctor`");
    Ok(Exit::Done)
}

/// The template, with what was found in place of its samples.
fn configuration(stacks: &[Stack]) -> String {
    if stacks.is_empty() {
        return TEMPLATE.to_owned();
    }
    let checks: Vec<String> = stacks.iter().map(check).collect();
    let unique = |all: Vec<&str>| -> String {
        let mut seen: Vec<String> = Vec::new();
        for one in all {
            let quoted = quoted(one);
            if !seen.contains(&quoted) {
                seen.push(quoted);
            }
        }
        seen.join(", ")
    };
    let tests = stacks.iter().flat_map(|stack| &stack.tests).map(String::as_str).collect();
    let tests = format!("# tests = [{}]\n", unique(tests));
    let readable: Vec<&str> = stacks.iter().flat_map(|stack| &stack.readable).copied().collect();
    let text = TEMPLATE.replacen(SAMPLE_CHECK, &checks.join("\n"), 1);
    let text = text.replacen(SAMPLE_TESTS, &tests, 1);
    match readable.is_empty() {
        true => text,
        false => {
            let readable = format!("# readable = [{}]\n", unique(readable));
            text.replacen(SAMPLE_READABLE, &readable, 1)
        }
    }
}

fn check(stack: &Stack) -> String {
    let check = &stack.check;
    let mut text = format!("[checks.{}]\ncommand = {}\n", check.name, quoted(&check.command));
    if check.parser != Parser::ExitCode {
        text.push_str(&format!("parser = \"{}\"\n", check.parser));
    }
    if let Some(report) = &check.report {
        text.push_str(&format!("report = {}\n", quoted(report)));
    }
    text
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_template_is_valid_as_it_is() {
        assert!(Config::parse(TEMPLATE).is_ok());
        for sample in [SAMPLE_CHECK, SAMPLE_TESTS, SAMPLE_READABLE] {
            assert_eq!(TEMPLATE.matches(sample).count(), 1, "{sample}");
        }
    }

    /// What is proposed is read back, with every character that a folder can have.
    #[test]
    fn what_is_found_becomes_a_valid_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let web = "we\"b 'o ne";
        fs::create_dir(dir.path().join(web)).unwrap();
        fs::write(dir.path().join("Cargo.toml"), "").unwrap();
        fs::write(dir.path().join(web).join("go.mod"), "").unwrap();
        let config = Config::parse(&configuration(&stacks::detect(dir.path()))).unwrap();
        let policy = config.policy();
        let checks: Vec<(&str, &str)> = policy
            .checks
            .iter()
            .map(|check| (check.name.as_str(), check.command.as_str()))
            .collect();
        let expected = [
            ("test-go", "cd './we\"b '\\''o ne' && go test -json ./..."),
            ("test-rust", "cargo test --offline --no-fail-fast"),
        ];
        assert_eq!(checks, expected);
        assert_eq!(policy.checks[1].reading.parser, Parser::Cargo);
    }
}

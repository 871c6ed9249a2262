//! `kapelle init`: a configuration to start from.

use std::io::Write;

use crate::args::InitArgs;
use crate::config::{Config, FILE_NAME};
use crate::output::{Exit, Problem, say};
use crate::project::Project;

const TEMPLATE: &str = include_str!("kapelle.toml");

pub async fn init(args: &InitArgs) -> Result<Exit, Problem> {
    let project = match Project::here().await {
        // A broken file is a reason to start over, if that is what was asked for.
        Err(problem) if problem.exit == Exit::Usage && args.force => {
            let here = std::env::current_dir().map_err(Problem::environment)?;
            let repo = kapelle_workspace::Repository::open(&here).await?;
            Project { repo, config: Config::default() }
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
    let file = options.open(&path).and_then(|mut file| file.write_all(TEMPLATE.as_bytes()));
    file.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Problem::refused(format!("{} is there already", path.display()))
                .hint("replace it with --force")
        }
        _ => Problem::environment(format!("{}: {e}", path.display())),
    })?;
    let budget = Config::default().policy().budget;
    say(format!("wrote {}", path.display()));
    say(format!(
        "caps: {} a mission, {} reserved for each attempt; change them under [budget]",
        budget.mission_usd_max, budget.attempt_usd_max
    ));
    say("next: say which agents do the work under [roles], then `kapelle doctor`");
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_valid_as_it_is() {
        assert!(Config::parse(TEMPLATE).is_ok());
    }
}

//! `kapelle agent scripted`: the scripted agent as a program of its own.
//!
//! It follows the command-agent contract like any other agent, and gives the scripted agent of
//! the `agents` crate its hands: a shell, git, and time.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kapelle_agents::Briefing;
use kapelle_agents::command::{BRIEFING_VARIABLE, REPORT_VARIABLE};
use kapelle_agents::scenario::Scenario;
use kapelle_agents::scripted::{Ended, Hands, play};

use crate::args::ScriptedArgs;
use crate::output::{Exit, Problem};

pub fn scripted(args: &ScriptedArgs) -> Result<i32, Problem> {
    let briefing: Briefing = serde_json::from_slice(&read(&variable(BRIEFING_VARIABLE)?)?)
        .map_err(|e| Problem::usage(format!("the briefing is not valid: {e}")))?;
    let report = variable(REPORT_VARIABLE)?;
    let text =
        String::from_utf8(read(&args.scenario.to_string_lossy())?).map_err(Problem::usage)?;
    let scenario = Scenario::parse(&text).map_err(Problem::usage)?;
    let here = std::env::current_dir().map_err(Problem::environment)?;
    let ended = play(&scenario, &briefing, &here, &mut Process { tree: &here });
    match ended.map_err(|e| Problem::new(Exit::Failed, e))? {
        Ended::Reported(said) => {
            let text = serde_json::to_vec_pretty(&said).map_err(Problem::environment)?;
            write(&report, &text)?;
            Ok(0)
        }
        Ended::Wrote(text) => {
            write(&report, text.as_bytes())?;
            Ok(0)
        }
        Ended::Exited(code) => Ok(code),
        Ended::Hangs => loop {
            std::thread::park();
        },
    }
}

struct Process<'a> {
    tree: &'a Path,
}

impl Hands for Process<'_> {
    fn say(&mut self, line: &str) -> io::Result<()> {
        writeln!(io::stdout().lock(), "{line}")
    }

    fn wait(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn commit(&mut self, message: &str) -> io::Result<()> {
        for args in [&["add", "--all"][..], &["commit", "--quiet", "--message", message]] {
            let status = Command::new("git").args(args).current_dir(self.tree).status()?;
            if !status.success() {
                return Err(io::Error::other(format!("git {} ended with {status}", args[0])));
            }
        }
        Ok(())
    }

    fn leave_orphan(&mut self) -> io::Result<()> {
        let mut orphan = Command::new("sleep");
        orphan.arg("3600").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut orphan, 0);
        orphan.spawn().map(|_| ())
    }
}

fn variable(name: &str) -> Result<String, Problem> {
    std::env::var(name).map_err(|_| {
        Problem::usage(format!("{name} is not set")).hint(
            "this program is an agent; Kapelle starts it. See docs/reference/command-agent.md",
        )
    })
}

fn read(path: &str) -> Result<Vec<u8>, Problem> {
    std::fs::read(path).map_err(|e| Problem::environment(format!("{path}: {e}")))
}

fn write(path: &str, text: &[u8]) -> Result<(), Problem> {
    std::fs::write(path, text).map_err(|e| Problem::environment(format!("{path}: {e}")))
}

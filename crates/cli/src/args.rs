//! The command line: what can be said, and how it is explained.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Hand a goal to a team of coding agents; get it delivered to your repository.
#[derive(Debug, Parser)]
#[command(name = "kapelle", version, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "Examples:
  kapelle demo                                   see it work, without keys or configuration
  kapelle run \"add rate limiting to the API\"     one goal, one task
  kapelle run --plan plan.json                   a plan of tasks
  kapelle approve                                deliver what was merged
  kapelle run --resume                           go on after an interruption

Exit codes: 0 done, 1 failed, 2 usage, 3 refused, 4 waiting for a person, 5 budget,
6 store or environment, 130 interrupted.";

const SEARCH_EXAMPLES: &str = "\
Examples:
  kapelle search rate limit                          both words, anywhere
  kapelle search --task 3-1 --kind log panicked      what was printed for one task
  kapelle search --type attempt_failed --since 2026-11-16";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Deliver a small mission on a sample repository, with the scripted team
    Demo(DemoArgs),
    /// Write a kapelle.toml to start from
    Init(InitArgs),
    /// Check that this machine has what Kapelle needs
    Doctor(LookArgs),
    /// Deliver a goal, or go on with what was begun
    Run(RunArgs),
    /// Show the missions
    Status(LookArgs),
    /// Show the tasks
    Tasks(LookArgs),
    /// Say why a task is not running or not merged
    Why(WhyArgs),
    /// Show what happened
    Log(LogArgs),
    /// Search what happened, and what agents and checks printed
    Search(SearchArgs),
    /// Approve the delivery of what a mission merged
    Approve(ApproveArgs),
    /// Answer the question of a task
    Answer(AnswerArgs),
    /// Pause a mission: its agents stop, their work is kept
    Pause(PauseArgs),
    /// Let a paused mission go on
    Resume(ResumeArgs),
    /// End a mission for good
    Cancel(CancelArgs),
    /// Check the journal
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Try the box that agents and checks run in
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// List the work that was kept before trees were removed, and get it back
    Recover(RecoverArgs),
    /// Look over the shoulder of an agent that runs in a session of tmux
    Attach(AttachArgs),
    /// Look at the project as it was at some moment
    Replay(ReplayArgs),
    /// Write the journal as lines of JSON
    Export(ExportArgs),
    /// Read an export into an empty store
    Import(ImportArgs),
    /// Look after the store
    #[command(subcommand)]
    Store(StoreCommand),
    /// Programs that are agents
    #[command(subcommand, hide = true)]
    Agent(AgentCommand),
    /// Write the generated reference
    #[command(hide = true)]
    Docs(DocsArgs),
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Recompute the hash chain and name the first broken record
    Verify(LookArgs),
}

#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Run a command in a fresh tree of this repository, in exactly the box that an agent gets
    Run(SandboxRunArgs),
    /// Say which layers the box has on this machine, and what each stops
    Explain(LookArgs),
}

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Make the tables for people anew, and say which of them had been wrong
    Rebuild(RebuildArgs),
    /// Copy everything to another store: from SQLite to PostgreSQL, or back
    Move(MoveArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kapelle sandbox run -- sh -c 'cat ~/.ssh/id_ed25519'
  kapelle sandbox run --role developer -- cargo test")]
pub struct SandboxRunArgs {
    /// The role whose agent's box it is, with what only that agent may read
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kapelle replay --at 120
  kapelle replay --at 2026-11-16T09:30:00Z --json
  kapelle replay --at 120 --diff 150")]
pub struct ReplayArgs {
    /// The moment: the number of a record, or a time in UTC such as 2026-11-16, 2026-11-16T09:30Z,
    /// 2026-11-16T09:30:00Z or 2026-11-16T09:30:00.250Z
    #[arg(long, value_name = "SEQ|TIME")]
    pub at: String,
    /// Show what changed from then to this moment instead
    #[arg(long, value_name = "SEQ|TIME")]
    pub diff: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kapelle recover                                list what was kept
  kapelle recover m2/a/11 --to ../salvage        all of it, in a new folder
  kapelle recover m2/a/11 --branch salvage       as a branch")]
pub struct RecoverArgs {
    /// Which, as the list names it
    pub name: Option<String>,
    /// Write its files into a new folder
    #[arg(long, value_name = "DIR", requires = "name", conflicts_with = "branch")]
    pub to: Option<PathBuf>,
    /// Make a branch of it
    #[arg(long, requires = "name")]
    pub branch: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Agents run in sessions with [team] runner = \"tmux\" in kapelle.toml. Leave a session with
Ctrl-B and then D; the agent goes on.

Examples:
  kapelle attach                                 the sessions that there are
  kapelle attach developer-1                     this one"
)]
pub struct AttachArgs {
    /// The agent; without it, those that can be attached to are listed
    pub agent: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kapelle export > journal.jsonl
  kapelle export --out journal.jsonl --json")]
pub struct ExportArgs {
    /// Where to write it; it must not be there yet [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// With --out: print what was written as JSON
    #[arg(long, requires = "out")]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kapelle import journal.jsonl
  zcat journal.jsonl.gz | kapelle import -")]
pub struct ImportArgs {
    /// An export; - for standard input
    pub file: PathBuf,
    /// Take a file that does not say where it ends, as far as it goes
    #[arg(long)]
    pub partial: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kapelle store move --to postgres://kapelle@db.example/kapelle
  kapelle store move --to postgres://kapelle@db.example/kapelle --project web_shop
  kapelle store move --to sqlite:.kapelle/back.db

The source stays as it is. Set [store] url in kapelle.toml to the new place afterwards.")]
pub struct MoveArgs {
    /// Where to: sqlite, sqlite:FILE or postgres://user@host/database; it has to be empty
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// The project's name there [default: that of the configuration, or of the folder]
    #[arg(long, value_name = "NAME")]
    pub project: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Play a scenario file
    Scripted(ScriptedArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kapelle run \"add rate limiting to the API\"
  kapelle run --plan plan.json --yes
  kapelle run --resume --yes --json")]
pub struct RunArgs {
    /// What you want, in your words
    pub goal: Option<String>,
    /// A plan of tasks (docs/reference/plan.schema.json); without it the goal is one task
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Go on with what was begun in this repository
    #[arg(long, conflicts_with_all = ["goal", "plan"])]
    pub resume: bool,
    /// Approve the delivery beforehand; recorded under your name
    #[arg(long)]
    pub yes: bool,
    /// Print a final report as JSON
    #[arg(long)]
    pub json: bool,
    /// The branch to deliver to [default: the one that is checked out]
    #[arg(long, value_name = "BRANCH")]
    pub target: Option<String>,
    /// Run agents and checks without a sandbox; recorded under your name
    #[arg(long)]
    pub unsandboxed: bool,
    /// Do not serve the dashboard
    #[arg(long)]
    pub no_dashboard: bool,
    /// The dashboard's port, 0 for any free one [default: 7117, or the next free one]
    #[arg(long)]
    pub port: Option<u16>,
    /// Keep the dashboard open after the mission, until Ctrl-C
    #[arg(long, conflicts_with = "no_dashboard")]
    pub keep_open: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kapelle demo
  kapelle demo --yes --json
  kapelle demo --dir /tmp/sample --keep-open --pace 400")]
pub struct DemoArgs {
    /// Put the sample repository, with its store, here and leave it [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Approve the delivery beforehand; the demo does so anyway, it is your sample
    #[arg(long)]
    pub yes: bool,
    /// Print a final report as JSON
    #[arg(long)]
    pub json: bool,
    /// Keep the dashboard open after the mission, until Ctrl-C; so it does at a terminal
    #[arg(long)]
    pub keep_open: bool,
    /// Let the scripted agents pause after every step [default: 300 at a terminal, else 0]
    #[arg(long, value_name = "MS")]
    pub pace: Option<u64>,
    /// The dashboard's port, 0 for any free one [default: 7117, or the next free one]
    #[arg(long)]
    pub port: Option<u16>,
    /// Run without a sandbox, where there is none
    #[arg(long)]
    pub unsandboxed: bool,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// Replace a kapelle.toml that is there
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct LookArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RebuildArgs {
    /// Go on with a journal that has lost its last records: whatever tells of them is made anew
    #[arg(long)]
    pub accept_loss: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The task, as the plan names it (3-1), or with its mission (m1/3-1)
    pub task: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LogArgs {
    /// Only the last N records
    #[arg(long, value_name = "N")]
    pub last: Option<u64>,
    /// Print the records as JSON, one a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = SEARCH_EXAMPLES)]
pub struct SearchArgs {
    /// Words, all of which have to occur [default: everything that the filters let through]
    pub words: Vec<String>,
    /// Only what this agent or person did, such as developer-1
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Only of this task, such as 3-1 or m1/3-1
    #[arg(long)]
    pub task: Option<String>,
    /// Only of this mission, such as m1
    #[arg(long)]
    pub mission: Option<String>,
    /// Only events of this type, such as attempt_failed
    #[arg(long = "type", value_name = "TYPE")]
    pub event: Option<String>,
    /// Only what happened, what programs printed, or what is remembered
    #[arg(long, value_parser = ["activity", "log", "memory"])]
    pub kind: Option<String>,
    /// Only from this time on: in UTC, such as 2026-11-16, 2026-11-16T09:30Z, 2026-11-16T09:30:00Z
    /// or 2026-11-16T09:30:00.250Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only up to this time, in the same forms
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// At most the last N
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub last: usize,
    /// Print what is found as JSON, one a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The mission, such as m1 [default: the last one]
    pub mission: Option<String>,
    /// The commit that you looked at; refused if another one is proposed
    #[arg(long)]
    pub commit: Option<String>,
    /// Print a final report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// The task that asks, such as 3-1 or m1/3-1
    pub task: String,
    pub answer: String,
}

#[derive(Debug, Args)]
pub struct PauseArgs {
    /// The mission, such as m1 [default: the last one]
    pub mission: Option<String>,
    /// Why; it is shown to everybody who wonders
    #[arg(long, default_value = "paused by hand")]
    pub reason: String,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The mission, such as m1 [default: the last one]
    pub mission: Option<String>,
}

#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The mission, such as m1 [default: the last one]
    pub mission: Option<String>,
    /// Why; it is recorded
    #[arg(long)]
    pub reason: String,
}

#[derive(Debug, Args)]
pub struct ScriptedArgs {
    /// The scenario to play
    #[arg(long, value_name = "FILE")]
    pub scenario: PathBuf,
}

#[derive(Debug, Args)]
pub struct DocsArgs {
    /// Where to write the files
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

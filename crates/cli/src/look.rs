//! Looking: status, tasks, log, why. Read from the journal; nothing is disturbed.

use std::collections::BTreeMap;
use std::fmt;

use kapelle_core::council::visible;
use kapelle_core::time::SECOND_MS;
use kapelle_core::{Record, Seq, State, why};
use kapelle_server::{view, wire};
use kapelle_store::{AuditError, Reader};

use crate::args::{LogArgs, LookArgs, WhyArgs};
use crate::ask::find_task;
use crate::output::{Exit, LOST_END, Problem, print, print_json, say};
use crate::project::Project;
use crate::session::lines;

pub async fn status(args: LookArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let (reader, engine) = project.read()?;
    let state = engine.state();
    let missions: Vec<wire::Mission> =
        state.missions().map(|mission| view::mission(state, mission)).collect();
    if args.json {
        print_json(&missions)?;
        return Ok(Exit::Done);
    }
    for mission in missions {
        print(format!(
            "{}  {}  {}/{} tasks  ${:.4} of ${:.2}  {}",
            mission.id,
            mission.status,
            mission.tasks_completed,
            mission.tasks_total,
            mission.cost_usd,
            mission.budget_usd,
            mission.goal.lines().next().unwrap_or(""),
        ));
        let next = mission.needs.map(|needs| format!("next: {needs}"));
        for text in [mission.status_reason, next].into_iter().flatten() {
            for line in text.lines() {
                print(format!("    {line}"));
            }
        }
    }
    idle(state).values().for_each(print);
    if let Some(trouble) = Trouble::told_by(&reader) {
        print(format!("WARNING: {trouble}"));
    } else if let Some(note) = tables_are_behind(&project, &reader)? {
        print(format!("note: {note}"));
    }
    if let Some(why) = reader.unsearchable() {
        print(format!("WARNING: {}", search_is_wrong(&why)));
    }
    match project.holder()? {
        Some(holder) => {
            let url = holder.url.as_deref().unwrap_or("no dashboard");
            print(format!("running: {holder} ({url})"));
        }
        None if state.missions().any(|mission| !mission.status().is_settled()) => {
            print("nothing runs this project now; go on with: kapelle run --resume");
        }
        None => {}
    }
    Ok(Exit::Done)
}

/// What a look at the tables for people shows to be wrong.
#[derive(Debug, PartialEq, Eq)]
pub enum Trouble {
    /// They themselves. They are a help beside the work, which goes on without them.
    Tables(String),
    /// They, or a snapshot, tell of records that the journal has lost. Nobody goes on from there.
    LostEnd(String),
}

impl Trouble {
    pub fn told_by(reader: &Reader) -> Option<Trouble> {
        match reader.lost_end() {
            Ok(Some(lost)) => Some(Trouble::LostEnd(lost.to_string())),
            // Whoever cannot be asked is asked for the tables, and says why not.
            Ok(None) | Err(_) => reader.trouble_with_tables().map(Trouble::Tables),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Tables(why) => write!(
                f,
                "the tables for SQL clients are not up to date: {why}; `kapelle store rebuild` makes them anew"
            ),
            Trouble::LostEnd(why) => write!(f, "{why}; {LOST_END}"),
        }
    }
}

/// While somebody runs the project they always are, for a moment. Later it means that whoever did
/// was cut short, or could not even say what was wrong, as on a full disk.
pub fn tables_are_behind(project: &Project, reader: &Reader) -> Result<Option<String>, Problem> {
    let behind = reader.records_behind().unwrap_or_default();
    if behind == 0 || project.holder()?.is_some() {
        return Ok(None);
    }
    Ok(Some(format!(
        "the tables for SQL clients do not tell of the last {behind} records; the next run, or `kapelle store rebuild`, catches up"
    )))
}

/// What is not found is still in its log.
pub fn search_is_wrong(why: &str) -> String {
    format!(
        "not everything can be searched: {why}; logs are in .kapelle/logs, `kapelle store rebuild` mends the search and ends this note"
    )
}

/// A warning for each agent that has printed nothing for a while (WRK-08), by its name.
pub fn idle(state: &State) -> BTreeMap<String, String> {
    let now = kapelle_conductor::clock::now();
    let idle = state.leases().filter_map(|(_, lease)| {
        let seconds = now.ms_since(lease.idle_since?) / SECOND_MS;
        let agent = lease.agent.to_string();
        let warning = format!("WARNING: {agent} idle for {seconds}s");
        Some((agent, warning))
    });
    idle.collect()
}

pub async fn tasks(args: LookArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let (_, engine) = project.read()?;
    let rows = rows(engine.state());
    if args.json {
        print_json(&rows)?;
        return Ok(Exit::Done);
    }
    for task in rows {
        let phase = task.phase.map(|phase| format!(" ({phase})")).unwrap_or_default();
        let why = task.why.unwrap_or_default();
        let why = why.lines().next().unwrap_or("");
        print(format!(
            "{}/{}  {}{phase}  {}  {}",
            task.mission, task.name, task.status, task.title, why
        ));
    }
    Ok(Exit::Done)
}

pub fn rows(state: &State) -> Vec<wire::Task> {
    let missions = state.missions();
    missions
        .flat_map(|mission| state.tasks_of(mission).map(|task| view::task(state, mission, task)))
        .collect()
}

pub async fn explain(args: WhyArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let (_, engine) = project.read()?;
    let state = engine.state();
    let task = find_task(state, &args.task)?;
    let mission = state.mission(task.mission).ok_or_else(|| Problem::refused("no such mission"))?;
    let status = task.status(mission);
    let sentence = why(state, task).unwrap_or_else(|| match &task.merged {
        Some(commit) => format!("merged as {}", commit.short()),
        None => "an agent is at work on it".to_owned(),
    });
    if args.json {
        let value = serde_json::json!({ "task": args.task, "status": status, "why": sentence });
        print_json(&value)?;
    } else {
        print(format!("{} is {status}: {sentence}", args.task));
    }
    Ok(Exit::Done)
}

pub async fn log(args: LogArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let (reader, engine) = project.read()?;
    let first = engine.head().0.saturating_sub(args.last.unwrap_or(u64::MAX));
    let history = reader.history(Seq(first));
    for record in history {
        let record = record?;
        if args.json {
            // What is voted in an open council is nobody's to see.
            let event = visible(engine.state(), &record.event).into_owned();
            let shown = Record { event, ..record };
            print(serde_json::to_string(&shown).map_err(Problem::environment)?);
        } else {
            for line in lines(engine.state(), &[record]) {
                print(line);
            }
        }
    }
    Ok(Exit::Done)
}

pub async fn audit(args: LookArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    if !project.is_begun()? {
        return Err(no_journal());
    }
    let reader = Reader::open(project.location()?)?;
    match reader.verify() {
        Ok(verified) => {
            let (records, head) = (verified.records, verified.head);
            if args.json {
                let value = serde_json::json!({
                    "intact": true, "records": records, "head_hash": head.hash.to_string() });
                print_json(&value)?;
            } else {
                print(format!("the journal is intact: {records} records, head {}", head.hash));
            }
            if let Some(trouble) = Trouble::told_by(&reader) {
                say(format!("note: {trouble}"));
            }
            if let Some(why) = reader.unsearchable() {
                say(format!("note: {}", search_is_wrong(&why)));
            }
            Ok(Exit::Done)
        }
        Err(AuditError::Broken(broken)) => Err(Problem::new(Exit::Failed, broken)
            .hint("somebody or something changed the store; restore it from a backup, in the place of all that is there")),
        Err(AuditError::Store(error)) => Err(error.into()),
    }
}

/// For whoever needs one.
pub fn no_journal() -> Problem {
    Problem::refused("there is no journal here yet")
        .hint("start a mission, or read an export: kapelle import FILE")
}

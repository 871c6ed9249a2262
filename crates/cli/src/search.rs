//! Search over what happened and what was printed (EVT-08). Read from the store; nothing is
//! disturbed.

use kapelle_core::State;
use kapelle_core::calendar::utc;
use kapelle_store::search::{Document, Kind, Query};

use crate::args::SearchArgs;
use crate::ask::{find_mission, find_task};
use crate::look::search_is_wrong;
use crate::output::{Exit, Problem, print, say};
use crate::project::Project;
use crate::replay::time_or_refuse;

/// Of a long log, the lines that were looked for.
const LINES_MAX: usize = 5;

pub async fn search(args: SearchArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let (reader, engine) = project.read()?;
    let query = query(&args, engine.state())?;
    let found = reader.search(&query).map_err(|error| match error {
        damaged @ kapelle_store::Error::Damaged { .. } => Problem::from(damaged)
            .hint("kapelle store rebuild makes the search anew; kapelle audit verify says whether more is damaged"),
        other => other.into(),
    })?;
    // The newest are found first, and read last.
    for hit in found.iter().rev() {
        if args.json {
            print(serde_json::to_string(hit).map_err(Problem::environment)?);
        } else {
            told(engine.state(), hit, &args.words).into_iter().for_each(print);
        }
    }
    if found.is_empty() {
        say("nothing is found");
    }
    if let Some(why) = reader.unsearchable() {
        say(format!("note: {}", search_is_wrong(&why)));
    }
    let behind = engine.head().0.saturating_sub(reader.searchable()?.0);
    if behind > 0 {
        let why = reader.trouble_with_search().map(|why| {
            format!(", because it is damaged ({why}); `kapelle store rebuild` makes it anew")
        });
        let why = why.unwrap_or_default();
        say(format!("note: the last {behind} records are not searchable yet{why}"));
    }
    Ok(Exit::Done)
}

fn query(args: &SearchArgs, state: &State) -> Result<Query, Problem> {
    let task = args.task.as_deref().map(|name| find_task(state, name).map(|task| task.id));
    let mission = args.mission.as_deref().map(|name| find_mission(state, Some(name)));
    let time = |given: &Option<String>| given.as_deref().map(time_or_refuse).transpose();
    let kind = Kind::ALL.into_iter().find(|kind| Some(kind.name()) == args.kind.as_deref());
    Ok(Query {
        text: args.words.join(" "),
        kind,
        mission: mission.transpose()?,
        task: task.transpose()?,
        agent: args.agent.clone(),
        event: args.event.clone(),
        since: time(&args.since)?,
        until: time(&args.until)?,
        limit: Some(args.last),
    })
}

/// Something that was found, as lines for people.
fn told(state: &State, hit: &Document, words: &[String]) -> Vec<String> {
    let who = hit.agent.as_deref().map(|who| format!(" {who}:")).unwrap_or_default();
    let task = hit.task.and_then(|id| state.task(id));
    let task = task.map(|task| format!(" {}/{}:", task.mission, task.name())).unwrap_or_default();
    let head = format!("[{}] {}:{who}{task}", utc(hit.at), hit.source);
    if hit.kind == Kind::Activity {
        return vec![format!("{head} {}", hit.body)];
    }
    let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    let has_word = |line: &&str| {
        let line = line.to_lowercase();
        words.is_empty() || words.iter().any(|word| line.contains(word.as_str()))
    };
    let mut lines = hit.body.lines().filter(has_word);
    let mut told = vec![head];
    told.extend(lines.by_ref().take(LINES_MAX).map(|line| format!("    {line}")));
    let more = lines.count();
    if more > 0 {
        told.push(format!("    … and {more} more lines"));
    }
    told
}

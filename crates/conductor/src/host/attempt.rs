//! One attempt: a clean worktree, an agent in its box, and what it left behind.

use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use kapelle_agents::Briefing;
use kapelle_agents::command::{self, Ending, Word};
use kapelle_core::command::{AttemptOutcome, Spending};
use kapelle_core::policy::Sandbox;
use kapelle_core::report::{Report, Usage};
use kapelle_core::{AgentId, Command, Commit, Effect, Fence, TaskId, limits};
use kapelle_store::search::{Document, Kind};
use kapelle_workspace::git;
use kapelle_workspace::process::{self, Exit, Hold, Spec};
use kapelle_workspace::subtask::Subtask;
use kapelle_workspace::tmux::Tmux;
use kapelle_workspace::worktree::{self, Worktree};
use tokio::sync::watch;

use super::ear::Ear;
use super::{Host, Order, Trouble, make_dir};
use crate::clock;

/// As much of a log as one search takes in.
const SEARCHED_BYTES_MAX: u64 = 100_000;

/// The places of one attempt.
struct Places {
    root: PathBuf,
    tree: PathBuf,
    /// Read-only for the agent.
    briefing: PathBuf,
    /// The agent's to write in.
    out: PathBuf,
    /// The agent's own git directory.
    git: PathBuf,
}

/// How the process came to its end.
enum End {
    Exited(Exit),
    Stopped,
}

/// What is known about an attempt when its process is gone.
enum Answer {
    /// With what the agent says about its work.
    Ended(AttemptOutcome, Spending, Option<Box<Report>>),
    /// Stopped from outside; the agent may have written down what it used until then.
    Stopped(Spending),
}

/// What an attempt left to be looked at.
struct Work<'a> {
    tree: &'a Worktree,
    briefing: &'a Briefing,
    fence: Fence,
    /// Where its phase began.
    since: &'a Commit,
}

impl Host {
    pub(super) async fn attempt(
        &self,
        order: &Order,
        stopped: watch::Receiver<bool>,
    ) -> Vec<Command> {
        let (Effect::RunAttempt { task, agent, base, since, .. }, Some(briefing)) =
            (&order.effect, &order.briefing)
        else {
            return Vec::new();
        };
        let fence = order.fence;
        let done = self.try_attempt(order, *agent, briefing, (base, since), stopped).await;
        self.index_log(order, *task, *agent);
        match done {
            Ok(Answer::Ended(outcome, spent, report)) => {
                // Its word comes first: with its end nobody listens to it any more.
                let said = report.filter(|report| report.says_something());
                let said = said.map(|report| Command::ReportTask { fence, report: *report });
                let finish = Command::FinishAttempt { fence, outcome, spent };
                said.into_iter().chain([finish]).collect()
            }
            // Nobody waits for its outcome any more, but what it cost is owed.
            Ok(Answer::Stopped(spent)) if spent != Spending::default() => {
                vec![Command::ReportSpending { fence, spent }]
            }
            Ok(Answer::Stopped(_)) => Vec::new(),
            Err(trouble) => {
                let outcome = trouble.outcome();
                vec![Command::FinishAttempt { fence, outcome, spent: Spending::default() }]
            }
        }
    }

    async fn try_attempt(
        &self,
        order: &Order,
        agent: AgentId,
        briefing: &Briefing,
        (base, since): (&Commit, &Commit),
        stopped: watch::Receiver<bool>,
    ) -> Result<Answer, Trouble> {
        let places = Places::new(self.workplace(order.fence));
        make_dir(&places.out)?;
        let tree = Worktree::prepare(&self.repo, &places.tree, base).await?;
        let spec = self.agent_spec(order, agent, briefing, &places, &tree).await?;
        let work = async {
            match &self.sessions {
                Some(tmux) => run_in_session(tmux, agent, spec, (stopped, &order.ear)).await,
                None => run(spec, (stopped, &order.ear)).await,
            }
        };
        // Beside the work: a branch to look at is nothing to wait for, or to fail for.
        let (end, _not_shown) = tokio::join!(work, self.show_branch(order, briefing, base));
        let end = end?;
        let report = read_report(&places.out.join("summary.json"));
        let answer = match end {
            End::Stopped => {
                let report = report.as_deref().and_then(|text| Report::parse(text).ok());
                Answer::Stopped(self.price(report.map(|report| report.usage).unwrap_or_default()))
            }
            End::Exited(exit) => {
                let said = report.as_deref().and_then(|text| Report::parse(text).ok());
                let work = Work { tree: &tree, briefing, fence: order.fence, since };
                let model = model_of(&order.effect, said.as_ref());
                let (outcome, spent) = self.answer(&work, model, &exit, report).await;
                Answer::Ended(outcome, spent, said.map(Box::new))
            }
        };
        // Whatever the outcome: the tree goes only after all of it is kept. A tree that cannot be
        // kept or removed stays, and the next start looks at it again; the outcome and what it cost
        // are what they are.
        let name = kept_name(briefing, order.fence);
        if let Err(left_for_the_next_start) = self.put_away(tree, &places, &name).await {
            let place = places.tree.display();
            let said =
                format!("kapelle: {place} is left for the next start: {left_for_the_next_start}");
            add_line(&self.attempt_log(order.fence), &said);
        }
        Ok(answer)
    }

    /// The task's own branch, where its accepted work can be seen (GIT-02).
    async fn show_branch(
        &self,
        order: &Order,
        briefing: &Briefing,
        base: &Commit,
    ) -> Result<(), Trouble> {
        let Effect::RunAttempt { task, .. } = &order.effect else { return Ok(()) };
        let Some(mission) = order.mission else { return Ok(()) };
        let (name, title) = (briefing.task.as_str(), briefing.title.as_str());
        let task = Subtask { mission, id: *task, name, title };
        Ok(self.repo.put_subtask(&task, base).await?)
    }

    async fn put_away(&self, tree: Worktree, places: &Places, name: &str) -> Result<(), Trouble> {
        let kept = tree.keep(name).await?;
        tree.keep_commits(&places.git, name).await?;
        tree.remove(kept).await?;
        worktree::remove_private(&places.git).await?;
        // The briefing and the report are in the journal and in the log.
        Ok(worktree::remove_scrap(&places.root).await?)
    }

    async fn agent_spec(
        &self,
        order: &Order,
        agent: AgentId,
        briefing: &Briefing,
        places: &Places,
        tree: &Worktree,
    ) -> Result<Spec, Trouble> {
        let driver = self.drivers.get(&agent.role).ok_or(Trouble::NoDriver(agent.role))?;
        let text = serde_json::to_vec_pretty(briefing).unwrap_or_default();
        std::fs::write(&places.briefing, text)
            .map_err(|source| Trouble::File { path: places.briefing.clone(), source })?;
        let mut env = self.env.clone();
        let report = places.out.join("summary.json");
        for (name, value) in command::variables(briefing, &places.briefing, &report) {
            env.insert(name, value.into());
        }
        if order.sandbox == Sandbox::Off {
            env.extend(identity());
        }
        let mut walls = tree.walls(&places.git).await?;
        walls.writable.push(places.out.clone());
        walls.readable.push(places.briefing.clone());
        walls.readable.extend(self.readable.iter().chain(&driver.readable).cloned());
        let spec = Spec {
            program: driver.program.clone(),
            args: driver.args.clone(),
            dir: tree.dir().to_owned(),
            env,
            lease: self.lease(order.fence),
            log: self.attempt_log(order.fence),
            hold: Hold::default(),
        };
        Ok(self.confinement(order.sandbox)?.confine(spec, &walls)?)
    }

    /// What the agent said, together with what it really left in the tree. What it spent is
    /// spent, whatever becomes of the rest.
    async fn answer(
        &self,
        work: &Work<'_>,
        model: Option<String>,
        exit: &Exit,
        report: Option<Vec<u8>>,
    ) -> (AttemptOutcome, Spending) {
        let ending = Ending { code: exit.code, signal: exit.signal, tail: exit.tail.clone() };
        let (word, usage) = command::read(&ending, report.as_deref());
        // What the machine did to it explains its end better than its exit code.
        let word = exit.failure().map_or(word, Word::Failed);
        let outcome = self.outcome(work, model.as_deref(), word).await;
        (outcome.unwrap_or_else(|trouble| trouble.outcome()), self.price(usage))
    }

    async fn outcome(
        &self,
        work: &Work<'_>,
        model: Option<&str>,
        word: Word,
    ) -> Result<AttemptOutcome, Trouble> {
        Ok(match word {
            Word::Failed(failure) => AttemptOutcome::Failed(failure),
            Word::Done => {
                let change = self.change(work, model).await?;
                let touched = match &change {
                    Some(change) => self.repo.changed_paths(work.since, change).await?,
                    None => Vec::new(),
                };
                AttemptOutcome::Done { change, touched: touched.into() }
            }
            Word::Asks(question) => {
                let change = self.change(work, model).await?;
                AttemptOutcome::Asked { question, change }
            }
        })
    }

    async fn change(
        &self,
        work: &Work<'_>,
        model: Option<&str>,
    ) -> Result<Option<Commit>, Trouble> {
        let Work { tree, briefing, fence, .. } = *work;
        let message = format!("{} {} ({})", briefing.task, briefing.title, briefing.phase);
        let fence_text = fence.to_string();
        let mut trailers = vec![
            ("Kapelle-Mission", briefing.mission.as_str()),
            ("Kapelle-Task", briefing.task.as_str()),
            ("Kapelle-Phase", briefing.phase.name()),
            ("Kapelle-Agent", briefing.agent.as_str()),
            ("Kapelle-Attempt", fence_text.as_str()),
        ];
        trailers.extend(model.map(|model| ("Kapelle-Model", model)));
        let change = tree.change(&message, &trailers).await.map_err(Trouble::Change)?;
        if let Some(change) = &change {
            // Until it is merged nothing else would hold on to it.
            self.repo.hold(&format!("changes/{}", kept_name(briefing, fence)), change).await?;
        }
        Ok(change)
    }

    fn attempt_log(&self, fence: Fence) -> PathBuf {
        self.log(&format!("attempt-{fence}.log"))
    }

    /// EVT-08: what the agent printed can be searched as soon as it is gone.
    fn index_log(&self, order: &Order, task: TaskId, agent: AgentId) {
        let Ok(printed) = tail(&self.attempt_log(order.fence)) else { return };
        if printed.trim().is_empty() {
            return;
        }
        order.handle.index(Document {
            kind: Kind::Log,
            source: format!("attempt {}", order.fence),
            seq: None,
            at: clock::now(),
            mission: order.mission,
            task: Some(task),
            agent: Some(agent.to_string()),
            event: None,
            body: printed,
        });
    }

    /// What agents of an earlier run wrote down about their use of models before they died. An
    /// attempt that was paid before is not paid again: the engine charges a fence once.
    pub(crate) fn bills_left(&self) -> Vec<Command> {
        let Ok(places) = std::fs::read_dir(self.dir.join("work")) else { return Vec::new() };
        let bill = |place: PathBuf| {
            let fence = Fence(place.file_name()?.to_str()?.parse().ok()?);
            let report = read_report(&Places::new(place).out.join("summary.json"))?;
            let spent = self.price(Report::parse(&report).ok()?.usage);
            (spent != Spending::default()).then_some((fence, spent))
        };
        let mut bills: Vec<(Fence, Spending)> =
            places.filter_map(|place| bill(place.ok()?.path())).collect();
        bills.sort_unstable_by_key(|(fence, _)| *fence);
        bills.into_iter().map(|(fence, spent)| Command::ReportSpending { fence, spent }).collect()
    }

    /// What the use of models cost, as far as prices are known.
    fn price(&self, usage: Vec<Usage>) -> Spending {
        let mut spent = Spending::default();
        for call in &usage {
            match self.prices.cost(&call.model, call.input_tokens, call.output_tokens) {
                Ok(cost) => spent.usd += cost,
                Err(unknown) => spent.unpriced = Some(unknown.model),
            }
        }
        Spending { usage, ..spent }
    }
}

impl Places {
    fn new(root: PathBuf) -> Places {
        Places {
            tree: root.join("tree"),
            briefing: root.join("briefing.json"),
            out: root.join("out"),
            git: root.join("git"),
            root,
        }
    }
}

/// The model that made the change: the one it was given, or the first that it says it used.
fn model_of(effect: &Effect, said: Option<&Report>) -> Option<String> {
    let given = match effect {
        Effect::RunAttempt { route: Some(route), .. } => Some(route.model.to_string()),
        _ => None,
    };
    let used = || said?.usage.first().map(|usage| usage.model.clone());
    let model = given.or_else(used)?;
    Some(limits::head(&model, limits::MODEL_CHARS_MAX).to_owned()).filter(|it| !it.is_empty())
}

/// Adds to a log that nobody else writes to any more.
fn add_line(log: &Path, line: &str) {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(log);
    // Whoever starts next is told as well.
    let _not_said = file.and_then(|mut file| writeln!(file, "{line}"));
}

/// The end of a log, where a long one tells how it went.
fn tail(log: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(SEARCHED_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(SEARCHED_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn kept_name(briefing: &Briefing, fence: Fence) -> String {
    format!("{}/{}/{}", briefing.mission, briefing.task, fence)
}

/// Behind walls an agent has a repository of its own, which says who commits. Without them it has
/// the person's, and no home to look for a name in.
fn identity() -> impl Iterator<Item = (String, OsString)> {
    ["AUTHOR", "COMMITTER"].into_iter().flat_map(|who| {
        let name = (format!("GIT_{who}_NAME"), git::IDENTITY_NAME.into());
        [name, (format!("GIT_{who}_EMAIL"), git::IDENTITY_EMAIL.into())]
    })
}

async fn run(
    spec: Spec,
    (mut stopped, ear): (watch::Receiver<bool>, &Ear),
) -> Result<End, Trouble> {
    let mut running = process::spawn(spec).await?;
    ear.listen(running.activity());
    let ended = tokio::select! {
        exit = running.wait() => Some(exit),
        _ = stopped.wait_for(|stopped| *stopped) => None,
    };
    match ended {
        Some(exit) => Ok(End::Exited(exit?)),
        None => {
            running.stop(process::GRACE).await?;
            Ok(End::Stopped)
        }
    }
}

/// The same where a person can attach. Its control group lasts as long as the spec.
async fn run_in_session(
    tmux: &Tmux,
    agent: AgentId,
    spec: Spec,
    (mut stopped, ear): (watch::Receiver<bool>, &Ear),
) -> Result<End, Trouble> {
    let session = tmux.start(&agent.to_string(), &spec).await?;
    ear.follow(spec.log.clone());
    let ended = tokio::select! {
        exit = session.exit(&spec) => Some(exit),
        _ = stopped.wait_for(|stopped| *stopped) => None,
    };
    // Whatever it left running ends with it; what cannot be ended now is, at the next start, and
    // takes nothing away from what was done.
    let stopped = session.stop().await;
    match ended {
        Some(exit) => Ok(End::Exited(exit?)),
        None => stopped.map(|()| End::Stopped).map_err(Trouble::from),
    }
}

/// The agent's report, if it wrote one as a plain file of a sane size. A link could lead to a file
/// that the agent itself may not read.
fn read_report(path: &Path) -> Option<Vec<u8>> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(nofollow_nonblock());
    let file = options.open(path).ok()?;
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut report = Vec::new();
    let bound = limits::REPORT_BYTES_MAX as u64 + 1;
    file.take(bound).read_to_end(&mut report).ok()?;
    Some(report)
}

fn nofollow_nonblock() -> i32 {
    use nix::fcntl::OFlag;
    (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()
}

//! A session: a conductor at work, its dashboard, and a person who watches.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use kapelle_conductor::project::Opened;
use kapelle_conductor::{Committed, Handle};
use kapelle_core::activity::count;
use kapelle_core::event::PauseReason;
use kapelle_core::mission::{MissionStage, MissionStatus};
use kapelle_core::{Actor, Command, Commit, MissionId, Record, State};
use kapelle_server::{Access, Past, view};
use kapelle_store::Reader;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::broadcast::error::RecvError;

use crate::output::{Exit, Problem, clock_time, say};
use crate::project::{Project, person};

/// Where the dashboard listens, unless somebody else does.
const PORT: u16 = 7117;
const PORTS_TRIED_MAX: u16 = 50;

/// Whether the person who typed the command approves what comes out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// `--yes`: recorded with the name of who typed it.
    Given,
    Asked,
}

pub struct Session {
    project: Project,
    opened: Opened,
    dashboard: Option<String>,
}

/// Why the watching ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Settled,
    Interrupted,
}

/// How long to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The missions cannot go on by themselves, or Ctrl-C.
    Settled,
    Interrupted,
}

/// The final report, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Report {
    mission: ReportMission,
    tasks: ReportTasks,
    attempts: u32,
    retries: u32,
    target: ReportTarget,
    journal: ReportJournal,
    cost_usd: f64,
    duration_ms: u64,
    dashboard_url: Option<String>,
}

#[derive(Debug, Serialize)]
struct ReportMission {
    id: String,
    status: MissionStatus,
    goal: String,
    /// What a person has to do next.
    needs: Option<String>,
}

#[derive(Debug, Serialize)]
struct ReportTasks {
    total: u32,
    completed: u32,
    failed: u32,
}

#[derive(Debug, Serialize)]
struct ReportTarget {
    branch: String,
    commit: Option<String>,
}

#[derive(Debug, Serialize)]
struct ReportJournal {
    events: u64,
    head_hash: String,
}

impl Session {
    pub async fn start(project: Project) -> Result<Session, Problem> {
        let opened = project.open().await?;
        for (place, why) in &opened.stuck {
            let place = place.display();
            say(format!(
                "WARNING: work of the last run could not be kept: {why}; it is in {place}"
            ));
        }
        Ok(Session { project, opened, dashboard: None })
    }

    pub fn handle(&self) -> &Handle {
        &self.opened.handle
    }

    pub fn project(&self) -> &Project {
        &self.project
    }

    /// Serves the dashboard on the loopback, for as long as the session lasts.
    pub async fn serve(&mut self, port: Option<u16>) -> Result<(), Problem> {
        let listener = listen(port).await?;
        let address = listener.local_addr().map_err(Problem::environment)?;
        let url = format!("http://{address}/");
        let access = Access { token: self.project.token()?.into() };
        let (name, handle) = (self.project.name(), self.opened.handle.clone());
        let past = Past {
            recent: std::mem::take(&mut self.opened.recent),
            commits: std::mem::replace(&mut self.opened.dashboard_commits, handle.follow()),
        };
        tokio::spawn(async move {
            if let Err(error) = kapelle_server::serve(listener, &name, handle, past, access).await {
                say(format!("the dashboard ended: {error}"));
            }
        });
        self.opened.leadership.publish(&url)?;
        // The file tells those on this machine, the store those on others.
        self.opened.handle.publish(&url).await.map_err(Problem::environment)?;
        say(format!("dashboard: {url}"));
        self.dashboard = Some(url);
        Ok(())
    }

    /// Tells what happens, and approves what was approved beforehand.
    pub async fn watch(
        &mut self,
        missions: &[MissionId],
        approval: Approval,
        until: Until,
        interrupts: &mut Interrupts,
    ) -> Result<Ended, Problem> {
        let mut approved = BTreeSet::new();
        let held_before = self.held(missions).await?;
        loop {
            let wanted = missions.to_vec();
            let standing = self.handle().look(move |state| standing(state, &wanted)).await?;
            let mut again = false;
            for (mission, commit) in standing.proposed {
                if approval == Approval::Given && approved.insert((mission, commit.clone())) {
                    self.approve(mission, commit).await?;
                    again = true;
                }
            }
            if again {
                continue;
            }
            // Whoever paused a mission while we run it can resume it from where they did; without
            // us there would be no dashboard to do so.
            let may_resume = self.dashboard.is_some() && !standing.held.is_subset(&held_before);
            if standing.settled && until == Until::Settled && !may_resume {
                self.tell_the_rest().await?;
                return Ok(Ended::Settled);
            }
            let commit = tokio::select! {
                biased;
                () = interrupts.next() => return Ok(Ended::Interrupted),
                commit = self.opened.commits.recv() => commit,
            };
            match commit {
                Ok(records) => self.tell(records).await?,
                Err(RecvError::Lagged(missed)) => say(format!("… {missed} commits not shown")),
                Err(RecvError::Closed) => return Err(Problem::environment("the conductor ended")),
            }
        }
    }

    /// What led to where things stand has been told to us by then, but not always to the person.
    async fn tell_the_rest(&mut self) -> Result<(), Problem> {
        while let Ok(records) = self.opened.commits.try_recv() {
            self.tell(records).await?;
        }
        Ok(())
    }

    /// Those of the missions that a person has paused.
    async fn held(&self, missions: &[MissionId]) -> Result<BTreeSet<MissionId>, Problem> {
        let wanted = missions.to_vec();
        Ok(self.handle().look(move |state| standing(state, &wanted).held).await?)
    }

    async fn approve(&self, mission: MissionId, commit: Commit) -> Result<(), Problem> {
        let by = Actor(format!("{} (--yes)", person()));
        match self.handle().send(Command::ApproveDelivery { mission, commit, by }).await {
            // Somebody else was faster, or it is no longer proposed: look again.
            Ok(_) | Err(kapelle_conductor::Error::Refused(_)) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    async fn tell(&self, records: Committed) -> Result<(), Problem> {
        let lines = self.handle().look(move |state| lines(state, &records)).await?;
        for line in lines {
            say(line);
        }
        Ok(())
    }

    pub async fn report(&self, mission: MissionId) -> Result<(Report, Exit), Problem> {
        let head = Reader::open(self.project.location()?)?.head()?;
        let dashboard_url = self.dashboard.clone();
        let look = move |state: &State| {
            let mission = state.mission(mission)?;
            let tasks = || state.tasks_of(mission);
            let ended = mission.ended_at.unwrap_or_else(kapelle_conductor::clock::now);
            let report = Report {
                mission: ReportMission {
                    id: mission.id.to_string(),
                    status: mission.status(),
                    goal: mission.goal.clone(),
                    needs: view::needs(state, mission),
                },
                tasks: ReportTasks {
                    total: mission.total(),
                    completed: mission.counts.completed,
                    failed: mission.counts.dead,
                },
                attempts: tasks().map(|task| task.attempts).sum(),
                retries: tasks().map(|task| task.retries).sum(),
                target: ReportTarget {
                    branch: mission.target.clone(),
                    commit: match &mission.stage {
                        MissionStage::Delivered { commit } => Some(commit.to_string()),
                        _ => None,
                    },
                },
                journal: ReportJournal { events: head.seq.0, head_hash: head.hash.to_string() },
                cost_usd: state.purse_of(mission.id).spent.as_f64(),
                duration_ms: ended.ms_since(mission.opened_at),
                dashboard_url,
            };
            Some((report, exit_of(mission.status(), mission.paused.as_ref())))
        };
        let report = self.handle().look(look).await?;
        report.ok_or_else(|| Problem::refused(format!("there is no mission {mission}")))
    }

    /// Stops what runs, keeps its work, and closes the store.
    pub async fn end(self) -> Result<(), Problem> {
        self.opened.handle.shut_down();
        Ok(self.opened.conductor.ended().await?)
    }
}

impl Report {
    /// The same for people.
    pub fn say(&self) {
        let mission = &self.mission;
        let retries = if self.retries == 1 { "retry" } else { "retries" };
        say(format!(
            "{} is {}: {} of {} completed, {} failed; {}, {} {retries}; ${:.4} in {:.1} s",
            mission.id,
            mission.status.name().replace('_', " "),
            self.tasks.completed,
            count(self.tasks.total, "task"),
            self.tasks.failed,
            count(self.attempts, "attempt"),
            self.retries,
            self.cost_usd,
            self.duration_ms as f64 / 1_000.0,
        ));
        if let Some(commit) = &self.target.commit {
            say(format!("{} is now at {}", self.target.branch, &commit[..10.min(commit.len())]));
        }
        if let Some(command) = &mission.needs {
            say(format!("next: {command}"));
        }
    }
}

struct Standing {
    proposed: Vec<(MissionId, Commit)>,
    settled: bool,
    /// Paused by a person.
    held: BTreeSet<MissionId>,
}

fn standing(state: &State, missions: &[MissionId]) -> Standing {
    let watched = || missions.iter().filter_map(|id| state.mission(*id));
    let proposed = watched().filter_map(|mission| match &mission.stage {
        MissionStage::Proposed { commit } if mission.paused.is_none() => {
            Some((mission.id, commit.clone()))
        }
        _ => None,
    });
    let settled = watched().all(|m| m.status().is_settled() && m.in_flight() == 0);
    let held = watched().filter(|m| matches!(m.paused, Some(PauseReason::Person { .. })));
    let held = held.filter(|m| !m.has_ended()).map(|m| m.id).collect();
    Standing { proposed: proposed.collect(), settled, held }
}

/// One line a record, as the log shows it. Tasks of several missions may have the same name.
pub fn lines(state: &State, records: &[Record]) -> Vec<String> {
    let several = state.missions().nth(1).is_some();
    let told = records.iter().filter_map(|record| view::activity(state, record));
    told.map(|line| {
        let mission = line.mission.filter(|_| several).map(|id| id + "/").unwrap_or_default();
        let task = line.task.map(|task| format!("{mission}{task}: ")).unwrap_or_default();
        format!("[{}] {}: {task}{}", clock_time(line.at), line.actor.to_uppercase(), line.text)
    })
    .collect()
}

fn exit_of(status: MissionStatus, paused: Option<&PauseReason>) -> Exit {
    match (status, paused) {
        (MissionStatus::Delivered, _) => Exit::Done,
        (MissionStatus::Failed | MissionStatus::Cancelled, _) => Exit::Failed,
        (
            _,
            Some(
                PauseReason::Budget { .. }
                | PauseReason::Overspent { .. }
                | PauseReason::Limit { .. }
                | PauseReason::Watchdog,
            ),
        ) => Exit::Budget,
        (_, Some(PauseReason::Environment { .. } | PauseReason::Machine { .. })) => {
            Exit::Environment
        }
        (_, Some(PauseReason::FailureRate { .. })) => Exit::Failed,
        (MissionStatus::Running | MissionStatus::Delivering, None) => Exit::Interrupted,
        (
            MissionStatus::Paused
            | MissionStatus::AwaitingAnswer
            | MissionStatus::AwaitingApproval
            | MissionStatus::Running
            | MissionStatus::Delivering,
            _,
        ) => Exit::Waiting,
    }
}

/// The given port, or the first free one from ours on.
async fn listen(port: Option<u16>) -> Result<TcpListener, Problem> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    if let Some(port) = port {
        return bind(port).await.map_err(|e| {
            Problem::environment(format!("port {port} cannot be used: {e}"))
                .hint("leave --port out to take the next free one")
        });
    }
    for port in PORT..PORT + PORTS_TRIED_MAX {
        if let Ok(listener) = bind(port).await {
            return Ok(listener);
        }
    }
    bind(0).await.map_err(|e| Problem::environment(format!("no port is free: {e}")))
}

/// Ctrl-C, or the polite request to end. From the moment that this is made none is missed,
/// whatever we are busy with when it comes.
#[derive(Debug)]
pub struct Interrupts {
    int: Signal,
    term: Signal,
}

impl Interrupts {
    pub fn listen() -> Result<Interrupts, Problem> {
        let listen = |kind| signal(kind).map_err(Problem::environment);
        Ok(Interrupts {
            int: listen(SignalKind::interrupt())?,
            term: listen(SignalKind::terminate())?,
        })
    }

    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}

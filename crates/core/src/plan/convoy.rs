//! Convoys: the tasks of one user story, kept with one developer as far as that costs no time.
//!
//! Invariant: a convoy has at most one owner, and an owner at most one convoy at a time. Ownership
//! is a preference, never a lock: a convoy may wait for a task of another one, and a rule that
//! forbids to help out would let both wait for ever.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Plan, PlannedTask};
use crate::ids::AgentId;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Convoy {
    /// Such as `convoy-us1`.
    pub id: String,
    /// The story as the plan names it first.
    pub user_story: String,
    /// In the order of the plan.
    pub tasks: Vec<String>,
}

/// How a task's convoy stands to an agent; the smaller, the sooner it should take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum Standing {
    /// It is the agent's own story.
    Own,
    /// A story that nobody has begun, for an agent without one.
    Unclaimed,
    /// Part of no story.
    Loose,
    /// A story that nobody has begun, while the agent has another one to finish.
    Second,
    /// Somebody else's story.
    Foreign { owner: AgentId },
}

/// The convoys of one mission and who has which.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Convoys {
    convoys: Vec<Convoy>,
    by_id: BTreeMap<String, usize>,
    by_task: BTreeMap<String, usize>,
    open: Vec<usize>,
    owners: BTreeMap<usize, AgentId>,
    owned: BTreeMap<AgentId, usize>,
}

impl Convoys {
    /// One convoy a story, in the order in which the plan names them.
    #[must_use]
    pub fn of(plan: &Plan) -> Convoys {
        let mut all = Convoys::default();
        all.planned(&plan.tasks);
        all
    }

    /// These tasks were planned; a later plan may add to a story that is there.
    pub fn planned<'a>(&mut self, tasks: impl IntoIterator<Item = &'a PlannedTask>) {
        for task in tasks {
            let Some(story) = task.user_story.as_deref() else { continue };
            let Some(id) = convoy_id(story) else { continue };
            let index = *self.by_id.entry(id).or_insert_with_key(|id| {
                let user_story = story.trim().to_owned();
                self.convoys.push(Convoy { id: id.clone(), user_story, tasks: Vec::new() });
                self.open.push(0);
                self.convoys.len() - 1
            });
            self.convoys[index].tasks.push(task.id.clone());
            self.open[index] += 1;
            self.by_task.insert(task.id.clone(), index);
        }
    }

    /// Who of these should take the task for the sake of its story, if any should before others.
    #[must_use]
    pub fn prefers(&self, agents: &[AgentId], task: &str) -> Option<AgentId> {
        self.by_task.get(task)?;
        let standing = |agent: AgentId| self.standing(agent, task);
        let best = agents.iter().copied().min_by_key(|agent| standing(*agent))?;
        match standing(best) {
            Standing::Own => Some(best),
            // Whoever has no story yet, before whoever would have two.
            Standing::Unclaimed if agents.iter().any(|a| standing(*a) == Standing::Second) => {
                Some(best)
            }
            _ => None,
        }
    }

    #[must_use]
    pub fn list(&self) -> &[Convoy] {
        &self.convoys
    }

    #[must_use]
    pub fn of_task(&self, task: &str) -> Option<&Convoy> {
        self.by_task.get(task).map(|index| &self.convoys[*index])
    }

    #[must_use]
    pub fn owner(&self, task: &str) -> Option<AgentId> {
        self.owners.get(self.by_task.get(task)?).copied()
    }

    /// How much an agent should want a task.
    #[must_use]
    pub fn standing(&self, agent: AgentId, task: &str) -> Standing {
        let Some(convoy) = self.by_task.get(task) else { return Standing::Loose };
        match self.owners.get(convoy) {
            Some(owner) if *owner == agent => Standing::Own,
            Some(owner) => Standing::Foreign { owner: *owner },
            None if self.owned.contains_key(&agent) => Standing::Second,
            None => Standing::Unclaimed,
        }
    }

    /// An agent began with a task: a story that nobody has is now its own, if it has none.
    pub fn taken(&mut self, task: &str, agent: AgentId) {
        let Some(&convoy) = self.by_task.get(task) else { return };
        if !self.owners.contains_key(&convoy) && !self.owned.contains_key(&agent) {
            self.owners.insert(convoy, agent);
            self.owned.insert(agent, convoy);
        }
    }

    /// A task of the story needs nobody any more. With the last one the agent is free for another.
    pub fn finished(&mut self, task: &str) {
        let Some(&convoy) = self.by_task.get(task) else { return };
        self.open[convoy] = self.open[convoy].saturating_sub(1);
        if self.open[convoy] == 0 {
            self.disown(convoy);
        }
    }

    /// The agent left the team; its story is anyone's.
    pub fn left(&mut self, agent: AgentId) {
        if let Some(&convoy) = self.owned.get(&agent) {
            self.disown(convoy);
        }
    }

    fn disown(&mut self, convoy: usize) {
        if let Some(agent) = self.owners.remove(&convoy) {
            self.owned.remove(&agent);
        }
    }
}

/// `US1`, `us-1`, `User story 1` and `1` are the same story; other names become part of the id.
fn convoy_id(story: &str) -> Option<String> {
    let words: Vec<String> = story
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let joined = words.join("-");
    let number = ["user-story-", "story-", "us-", "us", ""]
        .iter()
        .filter_map(|prefix| joined.strip_prefix(prefix))
        .find(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
    match number {
        Some(number) => {
            let digits = number.trim_start_matches('0');
            Some(format!("convoy-us{}", if digits.is_empty() { "0" } else { digits }))
        }
        None if joined.is_empty() => None,
        None => Some(format!("convoy-{joined}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Role;

    fn plan(tasks: &[(&str, &str)]) -> Plan {
        let task = |(id, story): &(&str, &str)| PlannedTask {
            id: (*id).into(),
            title: "t".into(),
            user_story: (!story.is_empty()).then(|| (*story).to_owned()),
            ..PlannedTask::default()
        };
        Plan { goal: None, tasks: tasks.iter().map(task).collect() }
    }

    fn dev(seat: u32) -> AgentId {
        AgentId { role: Role::Developer, seat }
    }

    fn story(convoys: &Convoys) -> Vec<(&str, Vec<&str>)> {
        let tasks = |c: &'_ Convoy| c.tasks.len();
        assert!(convoys.list().iter().map(tasks).all(|count| count > 0));
        let list = convoys.list().iter();
        list.map(|c| (c.id.as_str(), c.tasks.iter().map(String::as_str).collect())).collect()
    }

    #[test]
    fn one_convoy_for_each_user_story() {
        let plan = plan(&[("a", "US1"), ("b", "us-02"), ("c", ""), ("d", "User Story 1")]);
        let convoys = Convoys::of(&plan);
        let expected = [("convoy-us1", vec!["a", "d"]), ("convoy-us2", vec!["b"])];
        assert_eq!(story(&convoys), expected);
        assert_eq!(convoys.of_task("c"), None);
        assert_eq!(convoys.of_task("d").unwrap().user_story, "US1");
    }

    #[test]
    fn stories_without_a_number_keep_their_name() {
        let ids = |story: &str| convoy_id(story);
        assert_eq!(ids("Log in / out").as_deref(), Some("convoy-log-in-out"));
        assert_eq!(ids("user").as_deref(), Some("convoy-user"));
        assert_eq!(ids("us000").as_deref(), Some("convoy-us0"));
        assert_eq!(ids(" -- "), None);
    }

    /// One story in one head: context is loaded once, and its parts fit together.
    #[test]
    fn a_developer_stays_with_the_story_that_it_began() {
        let mut convoys =
            Convoys::of(&plan(&[("a", "US1"), ("b", "US1"), ("c", "US2"), ("d", "")]));
        assert_eq!(convoys.standing(dev(1), "a"), Standing::Unclaimed);
        convoys.taken("a", dev(1));
        assert_eq!(convoys.owner("b"), Some(dev(1)));
        let standings = |agent| ["b", "d", "c"].map(|task| convoys.standing(agent, task));
        assert_eq!(standings(dev(1)), [Standing::Own, Standing::Loose, Standing::Second]);
        let foreign = Standing::Foreign { owner: dev(1) };
        assert_eq!(standings(dev(2)), [foreign, Standing::Loose, Standing::Unclaimed]);
        assert!(Standing::Own < Standing::Unclaimed && Standing::Second < foreign);
    }

    /// Helping out with another's task must not take the story away, nor give a second one.
    #[test]
    fn helping_out_changes_no_owner() {
        let mut convoys = Convoys::of(&plan(&[("a", "US1"), ("b", "US2")]));
        convoys.taken("a", dev(1));
        convoys.taken("b", dev(1));
        assert_eq!(convoys.owner("b"), None);
        convoys.taken("a", dev(2));
        assert_eq!(convoys.owner("a"), Some(dev(1)));
    }

    #[test]
    fn a_story_is_given_up_when_it_is_done_or_its_owner_leaves() {
        let mut convoys = Convoys::of(&plan(&[("a", "US1"), ("b", "US2"), ("c", "US2")]));
        convoys.taken("a", dev(1));
        convoys.finished("a");
        assert_eq!(convoys.standing(dev(1), "b"), Standing::Unclaimed);
        convoys.taken("b", dev(1));
        convoys.finished("b");
        assert_eq!(convoys.owner("c"), Some(dev(1)));
        convoys.left(dev(1));
        assert_eq!(convoys.standing(dev(2), "c"), Standing::Unclaimed);
    }
}

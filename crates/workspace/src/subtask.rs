//! Branches of sub-tasks (GIT-02): on `subtask/3-1-login` people see what a task has so far.
//!
//! A branch is made where the task begins, follows its accepted work, and goes away once that has
//! landed on the mission's branch. Where we left each of them is kept in a hidden reference.
//!
//! Invariant: a branch that is not where we left it is a person's, and is left alone; a branch goes
//! away only when the mission's branch contains it. Nobody waits for these branches: the work itself
//! is held under `refs/kapelle/changes/`.

use kapelle_core::branch::slug;
use kapelle_core::{Commit, MissionId, TaskId};

use crate::git::args;
use crate::repository::{Repository, Result};

const HIDDEN: &str = "refs/kapelle/subtasks";

/// The task that a branch is for.
#[derive(Debug, Clone, Copy)]
pub struct Subtask<'a> {
    pub mission: MissionId,
    pub id: TaskId,
    /// As people type it, such as `3-1`.
    pub name: &'a str,
    pub title: &'a str,
}

impl Subtask<'_> {
    /// `subtask/3-1-login-form`.
    #[must_use]
    pub fn branch(&self) -> String {
        let (name, title) = (slug(self.name), slug(self.title));
        format!("subtask/{name}-{title}").trim_end_matches('-').to_owned()
    }
}

/// A branch of ours, as it was found.
struct Found {
    branch: String,
    /// Where we left it.
    left: Commit,
}

impl Repository {
    /// Makes the branch of a task at `commit`, or brings it there.
    pub async fn put_subtask(&self, task: &Subtask<'_>, commit: &Commit) -> Result<()> {
        match self.subtask(task.mission, task.id).await? {
            Some(found) => self.move_subtask(task.mission, task.id, &found, commit).await,
            None => {
                // Of two missions with a task of the same name, the second gets a longer one.
                let short = task.branch();
                let longer = format!("{short}-{}", task.mission);
                for branch in [short, longer] {
                    if self.branch_tip(&branch).await?.is_none() {
                        let hidden = hidden(task.mission, task.id, &branch);
                        let lines = format!(
                            "create refs/heads/{branch} {commit}\nupdate {hidden} {commit}\n"
                        );
                        return self.change_references(&lines).await;
                    }
                }
                Ok(())
            }
        }
    }

    /// Brings the branch of a task to the change that is about to be merged.
    pub async fn follow_subtask(
        &self,
        mission: MissionId,
        task: TaskId,
        change: &Commit,
    ) -> Result<()> {
        match self.subtask(mission, task).await? {
            Some(found) => self.move_subtask(mission, task, &found, change).await,
            None => Ok(()),
        }
    }

    /// Removes the branches of the tasks that came to the mission's branch between two commits.
    pub async fn remove_landed_subtasks(
        &self,
        mission: MissionId,
        (from, to): (&Commit, &Commit),
    ) -> Result<()> {
        let asked = args![
            "for-each-ref",
            "--format=%(refname)",
            format!("--merged={to}"),
            format!("--no-merged={from}"),
            format!("{HIDDEN}/{mission}/")
        ];
        let landed = self.git().text(asked).await?;
        for reference in landed.lines() {
            let Some(branch) = branch_in(reference) else { continue };
            if let Some(tip) = self.branch_tip(branch).await?
                && self.is_ancestor(&tip, to).await?
                && self.checked_out(branch).await?.is_none()
            {
                let lines = format!("delete refs/heads/{branch} {tip}\ndelete {reference}\n");
                self.change_references(&lines).await?;
            }
        }
        Ok(())
    }

    async fn subtask(&self, mission: MissionId, task: TaskId) -> Result<Option<Found>> {
        let place = format!("{HIDDEN}/{mission}/{}/", task.0);
        let asked = args!["for-each-ref", "--format=%(objectname) %(refname)", place];
        let listed = self.git().text(asked).await?;
        let found = listed.lines().find_map(|line| {
            let (left, reference) = line.split_once(' ')?;
            let branch = branch_in(reference)?.to_owned();
            Some(Found { branch, left: left.parse().ok()? })
        });
        Ok(found)
    }

    /// Only if it is where we left it, and nobody looks at it in a working tree. A task that starts
    /// over starts its branch over: what was on it is held elsewhere.
    async fn move_subtask(
        &self,
        mission: MissionId,
        task: TaskId,
        Found { branch, left }: &Found,
        to: &Commit,
    ) -> Result<()> {
        if left == to || self.checked_out(branch).await?.is_some() {
            return Ok(());
        }
        if self.branch_tip(branch).await?.as_ref() != Some(left) {
            return Ok(());
        }
        let hidden = hidden(mission, task, branch);
        let lines =
            format!("update refs/heads/{branch} {to} {left}\nupdate {hidden} {to} {left}\n");
        self.change_references(&lines).await
    }

    /// All of the changes or none.
    async fn change_references(&self, lines: &str) -> Result<()> {
        let git = self.git().clone().reading(lines);
        let _noted = self.note_locks(&[self.lock_of_all()])?;
        git.run(args!["update-ref", "--stdin", "-m", "kapelle: sub-task"]).await?;
        Ok(())
    }
}

fn hidden(mission: MissionId, task: TaskId, branch: &str) -> String {
    format!("{HIDDEN}/{mission}/{}/{branch}", task.0)
}

/// The branch that a hidden reference is about.
fn branch_in(reference: &str) -> Option<&str> {
    let mut parts = reference.strip_prefix(HIDDEN)?.splitn(4, '/');
    parts.nth(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_named_after_its_task() {
        let (mission, id) = (MissionId(1), TaskId(7));
        let named = |name, title| Subtask { mission, id, name, title }.branch();
        assert_eq!(named("3-1", "Login form"), "subtask/3-1-login-form");
        assert_eq!(named("3.1", ""), "subtask/3-1");
        assert_eq!(branch_in("refs/kapelle/subtasks/m1/7/subtask/3-1-x"), Some("subtask/3-1-x"));
    }
}

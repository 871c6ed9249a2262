//! Git as the world keeps it: commits with parents, branches, and which checks really ran.
//!
//! The engine never sees this; it only hears what hosts report. So what is true and what the
//! engine believes can be compared.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::Commit;
use kapelle_core::command::CheckResult;

#[derive(Debug, Default)]
pub(crate) struct Repository {
    commits: Vec<Node>,
    branches: BTreeMap<String, Commit>,
    /// Runs of all checks of a policy on a commit, by the names of those that failed.
    runs: BTreeSet<(Commit, BTreeSet<String>)>,
    /// Commits whose tests replace what they are to test.
    mocking: BTreeSet<Commit>,
    /// Where a branch stood when we found or brought it there.
    reached: BTreeSet<(String, Commit)>,
}

#[derive(Debug)]
struct Node {
    parents: Vec<usize>,
    passes: Passed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Passed {
    No,
    Yes,
}

impl From<bool> for Passed {
    fn from(passed: bool) -> Passed {
        if passed { Passed::Yes } else { Passed::No }
    }
}

impl Repository {
    pub(crate) fn commit(&mut self, parents: &[&Commit], passes: Passed) -> Commit {
        let parents = parents.iter().filter_map(|parent| self.number(parent)).collect();
        self.commits.push(Node { parents, passes });
        name(self.commits.len() - 1)
    }

    pub(crate) fn knows(&self, commit: &Commit) -> bool {
        self.number(commit).is_some()
    }

    /// What an honest run of the checks would say.
    pub(crate) fn passes(&self, commit: &Commit) -> bool {
        self.number(commit).is_some_and(|n| self.commits[n].passes == Passed::Yes)
    }

    pub(crate) fn is_ancestor(&self, old: &Commit, new: &Commit) -> bool {
        let (Some(old), Some(new)) = (self.number(old), self.number(new)) else { return false };
        let (mut open, mut seen) = (vec![new], BTreeSet::new());
        while let Some(at) = open.pop() {
            if at == old {
                return true;
            }
            // A parent is always older than its child.
            if at > old && seen.insert(at) {
                open.extend(&self.commits[at].parents);
            }
        }
        false
    }

    pub(crate) fn branch(&self, branch: &str) -> Option<&Commit> {
        self.branches.get(branch)
    }

    pub(crate) fn set_branch(&mut self, branch: &str, commit: &Commit) {
        self.branches.insert(branch.to_owned(), commit.clone());
    }

    /// Which check a broken commit fails: the one that was broken first.
    pub(crate) fn fault(&self, commit: &Commit) -> usize {
        let Some(mut at) = self.number(commit) else { return 0 };
        let broken = |n: &&usize| self.commits[**n].passes == Passed::No;
        while let Some(before) = self.commits[at].parents.iter().find(broken) {
            at = *before;
        }
        at
    }

    pub(crate) fn note_run(&mut self, commit: &Commit, results: &[CheckResult]) {
        self.runs.insert((commit.clone(), failed(results)));
    }

    pub(crate) fn ran(&self, commit: &Commit, results: &[CheckResult]) -> bool {
        self.runs.contains(&(commit.clone(), failed(results)))
    }

    pub(crate) fn note_mocks(&mut self, commit: &Commit) {
        self.mocking.insert(commit.clone());
    }

    pub(crate) fn mocks(&self, commit: &Commit) -> bool {
        self.mocking.contains(commit)
    }

    pub(crate) fn note_reached(&mut self, branch: &str, commit: &Commit) {
        self.reached.insert((branch.to_owned(), commit.clone()));
    }

    pub(crate) fn has_reached(&self, branch: &str, commit: &Commit) -> bool {
        let reached = self.reached.iter().rev().filter(|(name, _)| name == branch);
        reached.into_iter().any(|(_, tip)| self.is_ancestor(commit, tip))
    }

    fn number(&self, commit: &Commit) -> Option<usize> {
        let number = usize::from_str_radix(commit.short(), 16).ok()?;
        (number < self.commits.len()).then_some(number)
    }
}

/// The names of the checks that failed.
pub(crate) fn failed(results: &[CheckResult]) -> BTreeSet<String> {
    results.iter().filter(|result| !result.passed).map(|result| result.name.clone()).collect()
}

/// The number of a commit is in the part that stories show.
fn name(number: usize) -> Commit {
    match format!("{number:010x}{:030x}", 0).parse() {
        Ok(commit) => commit,
        Err(e) => unreachable!("forty digits are a commit: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_are_found_through_merges_only() {
        let mut repo = Repository::default();
        let root = repo.commit(&[], Passed::Yes);
        let left = repo.commit(&[&root], Passed::Yes);
        let right = repo.commit(&[&root], Passed::No);
        let merge = repo.commit(&[&left, &right], Passed::Yes);
        for old in [&root, &left, &right, &merge] {
            assert!(repo.is_ancestor(old, &merge), "{old}");
        }
        assert!(!repo.is_ancestor(&left, &right));
        assert!(!repo.is_ancestor(&merge, &root));
    }
}

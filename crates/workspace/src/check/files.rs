//! The test files of a commit, as git names their content: what a gate compares to see that tests
//! are byte for byte what they were.

use kapelle_core::Commit;
use kapelle_core::gates::TestFiles;

use crate::git::{self, args};
use crate::repository::Repository;

/// The files of a commit that match a pattern of tests, each with its mode and its content's name.
pub async fn test_files(
    repo: &Repository,
    commit: &Commit,
    tests: &[String],
) -> Result<TestFiles, git::Error> {
    let listed = repo.git().run(args!["ls-tree", "-r", "-z", commit.as_str()]).await?;
    let entries = listed.stdout.split(|byte| *byte == 0).filter_map(|entry| {
        let entry = String::from_utf8_lossy(entry);
        let (content, path) = entry.split_once('\t')?;
        Some((path.to_owned(), content.to_owned()))
    });
    Ok(TestFiles::of(entries, tests))
}

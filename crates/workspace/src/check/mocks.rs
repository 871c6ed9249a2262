//! Tests that replace what they are to test, looked for in the files of a commit (SEC-09).

use kapelle_core::gates::{Mock, Tested, mocked_units};
use kapelle_core::{Commit, limits};

use super::Error;
use crate::repository::Repository;

/// What of a test file is read. More than this was not written by hand.
const TEST_BYTES_MAX: usize = 1 << 20;

/// Where the tests of a change replace what the change is about.
pub async fn mocks(
    repo: &Repository,
    commit: &Commit,
    tested: &Tested,
) -> Result<Vec<Mock>, Error> {
    let mut found = Vec::new();
    if tested.units.is_empty() {
        return Ok(found);
    }
    for path in &tested.tests {
        // A test that was removed replaces nothing.
        let Some(text) = repo.file_at(commit, path, TEST_BYTES_MAX).await? else { continue };
        found.extend(mocked_units(path, &text, &tested.units));
        if found.len() >= limits::OBJECTIONS_MAX {
            break;
        }
    }
    Ok(found)
}

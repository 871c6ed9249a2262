//! Making a commit object from a tree that git already has.

use kapelle_core::Commit;

use crate::git::{Error, Git, args};

/// A message is one argument of a command, and Linux takes no argument past 128 KiB.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Writes a commit. Trailers such as `("Task", "3-1")` follow the message, one line each.
pub(crate) async fn write(
    git: &Git,
    tree: &str,
    parents: &[&Commit],
    message: &str,
    trailers: &[(&str, &str)],
) -> Result<Commit, Error> {
    let mut asked = args!["commit-tree", "--no-gpg-sign"];
    for parent in parents {
        asked.extend(args!["-p", parent.as_str()]);
    }
    asked.extend(args!["-m", text(message, trailers), tree]);
    let answer = git.text(asked).await?;
    answer.parse().map_err(|_| Error::Answer {
        arguments: "commit-tree".into(),
        answer,
        expected: "a commit",
    })
}

/// Git with the date of a commit, not of today: this is what makes whatever is built from that commit
/// reproducible.
pub(crate) async fn dated(git: &Git, commit: &Commit) -> Result<Git, Error> {
    let seconds = git.text(args!["show", "-s", "--format=%ct", commit.as_str()]).await?;
    Ok(at(git, &seconds))
}

/// Git with this date, in seconds.
pub(crate) fn at(git: &Git, seconds: &str) -> Git {
    let date = format!("@{seconds} +0000");
    git.clone().set("GIT_AUTHOR_DATE", &date).set("GIT_COMMITTER_DATE", &date)
}

fn text(message: &str, trailers: &[(&str, &str)]) -> String {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    // A zero byte cannot be part of an argument.
    let mut text = message[..end].trim().replace('\0', "");
    let mut separator = "\n\n";
    for (key, value) in trailers {
        text.push_str(separator);
        text.push_str(&format!("{}: {}", one_line(key), one_line(value)));
        separator = "\n";
    }
    text
}

/// A line break in a value would forge further trailers.
fn one_line(text: &str) -> String {
    text.replace('\0', "").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trailers say which task and attempt a commit belongs to; agents write the values.
    #[test]
    fn a_value_cannot_forge_a_trailer() {
        let written = text("Add it\n", &[("Task", "3-1\nApproved-by: me"), ("Attempt", "7")]);
        assert_eq!(written, "Add it\n\nTask: 3-1 Approved-by: me\nAttempt: 7");
    }
}

//! Overrides for the programs that a repository's own configuration would have git run.
//!
//! A `.gitattributes` file, which an agent may write, selects filters, merge drivers and diff
//! drivers by name; the configuration says which program a name stands for. Every name that the
//! configuration defines gets a harmless meaning:
//!
//! * filters pass content through, so files under large-file storage stay their pointer text;
//! * merge drivers report a conflict, because any other answer would be a guess;
//! * diff and text-conversion commands are emptied (our diffs ask for neither);
//! * hooks defined by configuration run `true`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::{Error, Git, args};

/// A setting that git is given beside those of the repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    pub name: OsString,
    pub value: OsString,
}

impl Setting {
    /// Whether files would be written or read differently by a git that obeys the repository.
    #[must_use]
    pub fn is_of_a_filter(&self) -> bool {
        self.name.as_encoded_bytes().starts_with(b"filter.")
    }
}

/// Reads the names of all settings and gives the overrides for those that run a program.
pub async fn overrides(git: &Git) -> Result<Vec<Setting>, Error> {
    let listed = git.run(args!["config", "--list", "--name-only", "-z"]).await?;
    let names = listed.stdout.split(|byte| *byte == 0);
    let mut settings: Vec<Setting> = names.flat_map(neutral).collect();
    settings.sort();
    settings.dedup();
    Ok(settings)
}

/// A name may hold anything but a zero byte and a line break, also bytes that are no text.
fn neutral(name: &[u8]) -> Vec<Setting> {
    let dot = |byte: &u8| *byte == b'.';
    let Some(last) = name.iter().rposition(dot) else { return Vec::new() };
    let Some(first) = name[..last].iter().position(dot) else { return Vec::new() };
    let (section, variable) = (&name[..first], &name[last + 1..]);
    let set = |variable: &str, value: &str| {
        let name = [&name[..=last], variable.as_bytes()].concat();
        Setting { name: OsString::from_vec(name), value: value.into() }
    };
    match (section, variable) {
        (b"filter", _) => {
            let mut all: Vec<_> = ["clean", "smudge", "process"].map(|it| set(it, "")).into();
            all.push(set("required", "false"));
            all
        }
        (b"merge", b"driver") => vec![set("driver", "false")],
        (b"diff", b"command") => vec![set("command", "")],
        (b"diff", b"textconv") => vec![set("textconv", "")],
        (b"hook", b"command") => vec![set("command", "true")],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name may contain dots itself; only the last part is the variable.
    #[test]
    fn every_program_gets_a_harmless_meaning() {
        let set =
            |name: &str, value: &str| vec![Setting { name: name.into(), value: value.into() }];
        assert_eq!(neutral(b"merge.a.b.driver"), set("merge.a.b.driver", "false"));
        assert_eq!(neutral(b"merge.a=b.driver"), set("merge.a=b.driver", "false"));
        assert_eq!(neutral(b"diff.pdf.textconv"), set("diff.pdf.textconv", ""));
        assert_eq!(neutral(b"filter.lfs.clean").len(), 4);
        assert_eq!(neutral(b"filter.\xff.clean").len(), 4);
        assert!(neutral(b"core.bare").is_empty());
        assert!(neutral(b"diff.external").is_empty());
    }
}

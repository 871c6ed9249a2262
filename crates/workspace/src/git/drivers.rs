//! Overrides for the programs that a repository's own configuration would have git run.
//!
//! A `.gitattributes` file, which an agent may write, selects filters, merge drivers and diff
//! drivers by name; the configuration says which program a name stands for. Every name that the
//! configuration defines gets a harmless meaning on the command line:
//!
//! * filters pass content through, so files under large-file storage stay their pointer text;
//! * merge drivers report a conflict, because any other answer would be a guess;
//! * diff and text-conversion commands are emptied (our diffs ask for neither);
//! * hooks defined by configuration run `true`.

use super::{Error, Git, args};

/// Reads the names of all settings and gives the overrides for those that run a program.
pub async fn overrides(git: &Git) -> Result<Vec<String>, Error> {
    let listed = git.run(args!["config", "--list", "--name-only", "-z"]).await?;
    let names = String::from_utf8_lossy(&listed.stdout);
    let mut settings: Vec<String> =
        names.split('\0').filter(|name| !name.contains(['=', '\n'])).flat_map(neutral).collect();
    settings.sort();
    settings.dedup();
    Ok(settings)
}

fn neutral(name: &str) -> Vec<String> {
    let Some((driver, variable)) = name.rsplit_once('.') else { return Vec::new() };
    let Some((section, _)) = driver.split_once('.') else { return Vec::new() };
    match (section, variable) {
        ("filter", _) => vec![
            format!("{driver}.clean="),
            format!("{driver}.smudge="),
            format!("{driver}.process="),
            format!("{driver}.required=false"),
        ],
        ("merge", "driver") => vec![format!("{driver}.driver=false")],
        ("diff", "command" | "textconv") => vec![format!("{name}=")],
        ("hook", "command") => vec![format!("{name}=true")],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name may contain dots itself; only the last part is the variable.
    #[test]
    fn every_program_gets_a_harmless_meaning() {
        assert_eq!(neutral("merge.a.b.driver"), ["merge.a.b.driver=false"]);
        assert_eq!(neutral("diff.pdf.textconv"), ["diff.pdf.textconv="]);
        assert_eq!(neutral("filter.lfs.clean").len(), 4);
        assert!(neutral("core.bare").is_empty());
        assert!(neutral("diff.external").is_empty());
    }
}

//! Flags that keep tools from waiting for somebody: added by what the command is, never twice.

/// The same words with the flags that belong to them (CMD-12).
#[must_use]
pub fn with_safety_flags(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    let start = words.iter().position(|word| !word.contains('=')).unwrap_or(words.len());
    let (program, first) = (name_of(words.get(start)), plain(&words, start + 1));
    let flags: &[&str] = match (program.as_str(), first.as_str()) {
        ("jest", _) | ("npx" | "bunx", "jest") => &["--forceExit", "--detectOpenHandles"],
        ("npm", "install" | "ci" | "i" | "add") => &["--no-optional", "--prefer-offline"],
        ("npm", "init") | ("npx", _) => &["--yes"],
        ("apt" | "apt-get" | "dnf" | "yum", _) => &["-y"],
        ("pip" | "pip3", _) => &["--no-input"],
        ("poetry", _) => &["--no-interaction"],
        _ => &[],
    };
    // Behind the program of `npx`, flags are for the tool; its own stand before it.
    let before_tool = program == "npx" && flags == ["--yes"];
    for flag in flags {
        if words.iter().any(|word| word == flag) {
            continue;
        }
        match before_tool {
            true => words.insert(start + 1, (*flag).into()),
            // Behind `--`, everything is for somebody else.
            false => {
                let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
                words.insert(end, (*flag).into());
            }
        }
    }
    words
}

fn name_of(word: Option<&String>) -> String {
    let word = word.map(String::as_str).unwrap_or_default();
    word.rsplit('/').next().unwrap_or(word).to_owned()
}

fn plain(words: &[String], from: usize) -> String {
    let mut words = words.iter().skip(from);
    words.find(|word| !word.starts_with('-')).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_gets_its_flags_once() {
        let cases = [
            ("npx jest src", "npx jest src --forceExit --detectOpenHandles"),
            ("jest --forceExit", "jest --forceExit --detectOpenHandles"),
            ("npm ci", "npm ci --no-optional --prefer-offline"),
            ("npx create-app x", "npx --yes create-app x"),
            ("apt-get install git", "apt-get install git -y"),
            ("pip install x -- y", "pip install x --no-input -- y"),
            ("A=b npm install", "A=b npm install --no-optional --prefer-offline"),
            ("cargo test", "cargo test"),
        ];
        for (before, after) in cases {
            let words: Vec<String> = before.split(' ').map(str::to_owned).collect();
            let flagged = with_safety_flags(&words);
            assert_eq!(flagged.join(" "), after);
            assert_eq!(with_safety_flags(&flagged), flagged, "once is enough");
        }
    }
}

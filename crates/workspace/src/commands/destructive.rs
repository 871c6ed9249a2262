//! Commands that nobody means: refused outside of a sandbox (CMD-18).
//!
//! This is a net for accidents, not a wall: a shell has endless ways to say the same. The sandbox
//! is the wall.

/// Longer texts are not looked through; they are refused as they are.
const TEXT_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` {why}; it can run in the sandbox only")]
pub struct Destructive {
    pub found: String,
    pub why: &'static str,
}

/// Whether a shell command would destroy more than a tree.
#[must_use]
pub fn destructive(text: &str) -> Option<Destructive> {
    let refused =
        |found: &str, why| Some(Destructive { found: found.chars().take(80).collect(), why });
    if text.len() > TEXT_BYTES_MAX {
        return refused(text, "is too long to be looked through");
    }
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if squeezed.contains(":(){:|:&};:") {
        return refused(text, "starts processes without end");
    }
    let parts = text.split(['\n', ';', '|', '&', '(', ')', '`']);
    parts.map(str::trim).find_map(|part| {
        let why = why(&part.split_whitespace().map(unquoted).collect::<Vec<_>>())?;
        refused(part, why)
    })
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\''])
}

fn why(words: &[&str]) -> Option<&'static str> {
    const BEFORE: [&str; 8] = ["sudo", "doas", "env", "nice", "time", "exec", "command", "nohup"];
    let start = words.iter().position(|word| !BEFORE.contains(word) && !word.contains('='))?;
    let program = words[start].rsplit('/').next().unwrap_or_default();
    let rest = &words[start + 1..];
    let device = |word: &&str| {
        word.contains("/dev/sd") || word.contains("/dev/nvme") || word.contains("/dev/vd")
    };
    let recursive = rest.iter().any(|word| *word == "--recursive" || is_short(word, ['r', 'R']));
    match program {
        "rm" if recursive && rest.iter().any(|word| is_everything(word)) => {
            Some("removes everything")
        }
        "chmod" | "chown" | "chgrp" if recursive && rest.iter().any(|word| is_everything(word)) => {
            Some("changes the rights of everything")
        }
        "dd" if rest.iter().any(|word| word.starts_with("of=/dev/")) => Some("overwrites a device"),
        "shutdown" | "reboot" | "halt" | "poweroff" => Some("stops the machine"),
        program if program.starts_with("mkfs") || program == "wipefs" => Some("erases a disk"),
        _ if rest.windows(2).any(|pair| pair[0].ends_with('>') && device(&pair[1])) => {
            Some("overwrites a device")
        }
        _ => None,
    }
}

fn is_short(word: &str, letters: [char; 2]) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.contains(letters)
}

/// The root, the home, or all that is in one of them.
fn is_everything(word: &str) -> bool {
    let word = word.trim_end_matches('*').trim_end_matches('/');
    let top = ["", "~", "$HOME", "${HOME}", "..", "/home", "/root", "/etc", "/usr", "/var", "/."];
    top.contains(&word) && !word.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_means_is_refused() {
        for command in [
            "rm -rf /",
            "cd x && sudo rm -fr \"/\"",
            "rm -r --force ~/",
            "A=b rm -R /*",
            "rm -rf $HOME",
            "chmod -R 777 /",
            "dd if=/dev/zero of=/dev/sda",
            "mkfs.ext4 /dev/sda1",
            "echo x > /dev/nvme0n1",
            ":(){ :|:& };:",
            "true; /sbin/reboot",
        ] {
            assert!(destructive(command).is_some(), "{command}");
        }
    }

    #[test]
    fn ordinary_work_goes_on() {
        for command in [
            "rm -rf target",
            "rm -rf ./node_modules /tmp/x",
            "rm file",
            "chmod -R u+w build",
            "dd if=a of=b",
            "git rm -r --cached src",
            "echo 'rm' '/'",
            "grep -r / src > out",
        ] {
            assert_eq!(destructive(command), None, "{command}");
        }
    }
}

//! Path patterns as in `.gitignore`, in small: `*`, `?` within a name, `**` across folders.

/// Whether `path` (with `/`, relative) matches `pattern`.
#[must_use]
pub fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<&str> = pattern.trim_matches('/').split('/').collect();
    let path: Vec<&str> = path.trim_matches('/').split('/').collect();
    folders(&pattern, &path)
}

fn folders(pattern: &[&str], path: &[&str]) -> bool {
    // `reached[i]`: the pattern so far can end just before path[i]. One row a pattern part, so
    // that hostile patterns cost pattern × path and not an exponential search.
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        for i in 0..=path.len() {
            if *part == "**" {
                next[i] = reached[i] || (i > 0 && next[i - 1]);
            } else if i > 0 {
                next[i] = reached[i - 1] && name(part, path[i - 1]);
            }
        }
        reached = next;
    }
    reached[path.len()]
}

fn name(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let mut reached = vec![false; pattern.len() + 1];
    let stars = |reached: &mut Vec<bool>| {
        for (i, c) in pattern.iter().enumerate() {
            if reached[i] && *c == '*' {
                reached[i + 1] = true;
            }
        }
    };
    reached[0] = true;
    stars(&mut reached);
    for c in name.chars() {
        let mut next = vec![false; pattern.len() + 1];
        for (i, p) in pattern.iter().enumerate() {
            match p {
                '*' if reached[i] => next[i] = true,
                '?' if reached[i] => next[i + 1] = true,
                exact if reached[i] && *exact == c => next[i + 1] = true,
                _ => {}
            }
        }
        stars(&mut next);
        reached = next;
    }
    reached[pattern.len()]
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_mean_what_they_mean_in_gitignore() {
        let yes = [
            ("tests/**", "tests/api.sh"),
            ("tests/**", "tests/deep/er.rs"),
            ("**/*.spec.ts", "web/src/a.spec.ts"),
            ("**/*.spec.ts", "a.spec.ts"),
            ("*.md", "README.md"),
            ("src/?.rs", "src/a.rs"),
            ("a*b*c", "axxbyyc"),
            ("**", "any/thing"),
        ];
        let no = [
            ("tests/*", "tests/deep/er.rs"),
            ("*.md", "docs/README.md"),
            ("src/?.rs", "src/ab.rs"),
            ("a*b*c", "axxbyy"),
            ("tests/**", "src/tests.rs"),
        ];
        for (pattern, path) in yes {
            assert!(matches(pattern, path), "{pattern} should match {path}");
        }
        for (pattern, path) in no {
            assert!(!matches(pattern, path), "{pattern} should not match {path}");
        }
    }

    /// A pattern comes from a repository's own file; it must not be able to stall the engine.
    #[test]
    fn hostile_patterns_stay_cheap() {
        let path = vec!["a"; 200].join("/");
        assert!(!matches(&format!("{}b", "**/".repeat(200)), &path));
        assert!(!matches(&format!("{}b", "*a".repeat(200)), &"a".repeat(1_000)));
    }
}

//! Keys of known shape: a prefix that their issuer chose so that they can be found.

/// A key: its prefix, and how many characters of which kind follow.
struct Shape {
    looks_like: &'static str,
    prefix: &'static str,
    rest: fn(char) -> bool,
    at_least: usize,
    at_most: usize,
}

const fn shape(
    looks_like: &'static str,
    prefix: &'static str,
    rest: fn(char) -> bool,
    at_least: usize,
    at_most: usize,
) -> Shape {
    Shape { looks_like, prefix, rest, at_least, at_most }
}

const MANY: usize = 500;

/// As their issuers document them.
const SHAPES: [Shape; 38] = [
    shape("an AWS access key", "AKIA", upper, 16, 16),
    shape("an AWS access key", "ASIA", upper, 16, 16),
    shape("a GitHub token", "ghp_", word, 36, 255),
    shape("a GitHub token", "gho_", word, 36, 255),
    shape("a GitHub token", "ghu_", word, 36, 255),
    shape("a GitHub token", "ghs_", word, 36, 255),
    shape("a GitHub token", "ghr_", word, 36, 255),
    shape("a GitHub token", "github_pat_", word, 60, 255),
    shape("a GitLab token", "glpat-", dashed, 20, 255),
    shape("a GitLab token", "gldt-", dashed, 20, 255),
    shape("a Slack token", "xoxb-", dashed, 20, 255),
    shape("a Slack token", "xoxp-", dashed, 20, 255),
    shape("a Slack token", "xoxa-", dashed, 20, 255),
    shape("a Slack token", "xoxs-", dashed, 20, 255),
    shape("a Slack web hook", "hooks.slack.com/services/T", path, 30, 255),
    shape("a Stripe key", "sk_live_", word, 20, 255),
    shape("a Stripe key", "rk_live_", word, 20, 255),
    shape("an Anthropic key", "sk-ant-", dashed, 30, 255),
    shape("an OpenAI key", "sk-proj-", dashed, 30, 255),
    shape("an OpenAI key", "sk-svcacct-", dashed, 30, 255),
    shape("a Google key", "AIza", dashed, 35, 35),
    shape("a Google OAuth secret", "GOCSPX-", dashed, 28, 28),
    shape("an npm token", "npm_", word, 36, 36),
    shape("a PyPI token", "pypi-AgE", dashed, 50, MANY),
    shape("a crates.io token", "cio", alphanumeric, 32, 32),
    shape("a Hugging Face token", "hf_", alphanumeric, 34, 40),
    shape("a DigitalOcean token", "dop_v1_", hex, 64, 64),
    shape("a Databricks token", "dapi", hex, 32, 34),
    shape("a Shopify token", "shpat_", hex, 32, 32),
    shape("a Vault token", "hvs.", dashed, 24, MANY),
    shape("a Linear key", "lin_api_", alphanumeric, 40, 40),
    shape("a SendGrid key", "SG.", dotted, 66, 66),
    shape("a Groq key", "gsk_", alphanumeric, 52, 52),
    shape("an age key", "AGE-SECRET-KEY-1", upper, 58, 58),
    shape("a Docker Hub token", "dckr_pat_", dashed, 27, 36),
    shape("an Azure storage key", "AccountKey=", base64, 80, 100),
    shape("a Telegram bot token", ":AA", dashed, 33, 33),
    shape("a JSON web token", "eyJ", dotted, 60, 4_000),
];

/// What a line holds, if it is a key that can be recognised.
pub fn known(line: &str, is_allowed: impl Fn(&str) -> bool) -> Option<&'static str> {
    if is_private_key(line) && !is_allowed(line) {
        return Some("a private key");
    }
    let found = SHAPES.iter().find(|shape| {
        let places = line.match_indices(shape.prefix).take(MATCHES_MAX);
        let mut keys = places.filter_map(|(at, _)| shape.at(line, at));
        keys.any(|key| !is_placeholder(key) && !is_allowed(key))
    });
    found.map(|shape| shape.looks_like)
}

/// Tries in one line; what comes after is machine-made.
const MATCHES_MAX: usize = 1_000;

impl Shape {
    /// The key that begins here, if one does.
    fn at<'a>(&self, line: &'a str, at: usize) -> Option<&'a str> {
        // Inside of a longer word it is not a key. A colon begins the middle of a bot token.
        let before = line[..at].chars().next_back();
        if !self.prefix.starts_with(':') && before.is_some_and(word) {
            return None;
        }
        let behind = &line[at + self.prefix.len()..];
        let length = behind.chars().take(self.at_most + 1).take_while(|c| (self.rest)(*c)).count();
        if !(self.at_least..=self.at_most).contains(&length) {
            return None;
        }
        // All characters of all kinds have one byte.
        let key = &line[at..at + self.prefix.len() + length];
        match self.looks_like {
            "a JSON web token" => (key.matches('.').count() == 2).then_some(key),
            "a Telegram bot token" => before.is_some_and(|c| c.is_ascii_digit()).then_some(key),
            _ => Some(key),
        }
    }
}

fn is_private_key(line: &str) -> bool {
    let Some((_, rest)) = line.split_once("-----BEGIN ") else { return false };
    let Some((kind, _)) = rest.split_once("-----") else { return false };
    kind.ends_with("PRIVATE KEY") || kind == "PGP PRIVATE KEY BLOCK"
}

/// Documentation shows keys that are none.
pub fn is_placeholder(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let words = ["example", "placeholder", "changeme", "change-me", "dummy", "your", "redacted"];
    let mut kinds: Vec<char> = lower.chars().collect();
    kinds.sort_unstable();
    kinds.dedup();
    // `AKIAXXXXXXXXXXXXXXXX`: a key has more than a handful of different characters.
    kinds.len() < 8 || words.iter().any(|word| lower.contains(word))
}

fn upper(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit()
}

fn hex(c: char) -> bool {
    c.is_ascii_hexdigit()
}

fn alphanumeric(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn dashed(c: char) -> bool {
    word(c) || c == '-'
}

fn dotted(c: char) -> bool {
    dashed(c) || c == '.'
}

fn path(c: char) -> bool {
    word(c) || c == '/'
}

fn base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || ['+', '/', '='].contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOISE: &str = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzC";

    fn looks(line: &str) -> Option<&'static str> {
        known(line, |_| false)
    }

    /// Every shape is found with characters of its kind, and not when it is too short or part of
    /// a longer word.
    #[test]
    fn every_shape_is_found_where_it_stands_alone() {
        for shape in &SHAPES {
            let kind: Vec<char> = NOISE.chars().chain("23456789ABCDEF".chars()).collect();
            let kind: Vec<char> = kind.into_iter().filter(|c| (shape.rest)(*c)).collect();
            let rest: String = kind.iter().cycle().take(shape.at_least).collect();
            let (before, rest) = match shape.looks_like {
                "a JSON web token" => ("", format!("{}.{}.{rest}", &rest[..20], &rest[..20])),
                "a Telegram bot token" => ("12345", rest),
                _ => ("", rest),
            };
            let line = format!("key = \"{before}{}{rest}\";", shape.prefix);
            assert_eq!(looks(&line), Some(shape.looks_like), "{line}");
            let short =
                format!("key = \"{before}{}{}\"", shape.prefix, &rest[..shape.at_least / 2]);
            assert_ne!(looks(&short), Some(shape.looks_like), "{short}");
            if before.is_empty() {
                let inside = format!("xx{}{rest}", shape.prefix);
                assert_ne!(looks(&inside), Some(shape.looks_like), "{inside}");
            }
        }
    }

    #[test]
    fn private_keys_are_found_and_public_ones_are_not() {
        for kind in
            ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
        {
            assert_eq!(looks(&format!("-----BEGIN {kind}-----")), Some("a private key"));
        }
        assert_eq!(looks("-----BEGIN PUBLIC KEY-----"), None);
        assert_eq!(looks("-----BEGIN CERTIFICATE-----"), None);
    }

    #[test]
    fn keys_of_documentation_are_let_alone() {
        assert_eq!(looks(&format!("AKIA{}", "IOSFODNN7EXAMPLE")), None);
        assert_eq!(looks(&format!("AKIA{}", "X".repeat(16))), None);
        assert_eq!(looks(&format!("ghp_{}", "your_token_goes_here_and_is_long_enough")), None);
    }
}

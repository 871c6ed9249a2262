//! Guesses: a name that promises a secret, with a value that looks random; a password in an
//! address.

use super::shapes::is_placeholder;

/// Names that promise a secret.
const NAMES: [&str; 9] = [
    "secret",
    "passw",
    "token",
    "api_key",
    "apikey",
    "api-key",
    "private_key",
    "access_key",
    "credential",
];

const VALUE_CHARS_MIN: usize = 12;
const VALUE_CHARS_MAX: usize = 500;

/// Bits for each character. English prose of this length stays below it, random text above.
const ENTROPY_MIN: f64 = 3.3;

/// Hexadecimal text can have at most four, and short hashes are everywhere.
const HEX_CHARS_MIN: usize = 32;
const HEX_ENTROPY_MIN: f64 = 3.0;

/// What a line probably holds.
pub fn likely(line: &str, is_allowed: impl Fn(&str) -> bool) -> Option<&'static str> {
    if let Some(value) = assigned(line)
        && is_random(value)
        && !is_allowed(value)
    {
        return Some("a secret that is assigned to a name");
    }
    let password = password_in_address(line)?;
    (!is_allowed(password)).then_some("a password in an address")
}

/// The value in `secret_name = "value"`, `"secret": "value"`, `SECRET=value`.
fn assigned(line: &str) -> Option<&str> {
    let lower = line.to_ascii_lowercase();
    let name = NAMES.iter().filter_map(|name| Some(lower.find(name)? + name.len())).min()?;
    let behind = &line[name..];
    // The rest of the name, its closing quote, a type: then the sign.
    let sign = behind.find(['=', ':'])?;
    let between = &behind[..sign];
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-\"'` ]".contains(c);
    if !between.chars().all(is_name) {
        return None;
    }
    let value = behind[sign..].trim_start_matches([':', '=', '>', ' ', '\t']);
    // `secret: &str = "value"`
    let value = match value.find('=') {
        Some(at)
            if !value.starts_with(['"', '\'', '`'])
                && value[at + 1..].trim_start().starts_with('"') =>
        {
            value[at + 1..].trim_start()
        }
        _ => value,
    };
    let quote = value.chars().next().filter(|quote| ['"', '\'', '`'].contains(quote));
    match quote {
        Some(quote) => value[1..].split(quote).next(),
        None => value.split([' ', '\t', ',', ';', '#']).next(),
    }
}

/// Whether a value looks as if a machine had drawn it.
fn is_random(value: &str) -> bool {
    let chars = value.chars().count();
    if !(VALUE_CHARS_MIN..=VALUE_CHARS_MAX).contains(&chars) || is_placeholder(value) {
        return false;
    }
    let plain = |c: char| c.is_ascii_graphic();
    // Calls, paths of names, variables and templates are code, not values.
    let is_code = value.contains(['(', ')', '{', '}', '<', '[', ']', '\\'])
        || value.contains("::")
        || value.contains("->")
        || value.starts_with(['$', '%', '&', '@', '/', '.']);
    let has = |kind: fn(&char) -> bool| value.chars().any(|c| kind(&c));
    let is_mixed = has(char::is_ascii_digit) && has(char::is_ascii_alphabetic);
    if is_code || !is_mixed || !value.chars().all(plain) {
        return false;
    }
    if value.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
        return chars >= HEX_CHARS_MIN && entropy(value) >= HEX_ENTROPY_MIN;
    }
    entropy(value) >= ENTROPY_MIN && !is_words(value)
}

/// `token-for-the-2nd-request`: words with a separator between them.
fn is_words(value: &str) -> bool {
    let parts: Vec<&str> = value.split(['-', '_', '.', ' ', '/']).collect();
    let one_case = |part: &&str| {
        part.len() <= 12
            && (part.chars().all(|c| c.is_ascii_lowercase())
                || part.chars().all(|c| c.is_ascii_uppercase()))
    };
    let words = parts.iter().filter(|part| one_case(part)).count();
    parts.len() >= 3 && words * 3 >= parts.len() * 2
}

/// Shannon's, in bits for each character.
#[expect(clippy::cast_precision_loss, reason = "a line is short")]
fn entropy(text: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let total = text.len() as f64;
    let shares = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / total);
    shares.map(|share| -share * share.log2()).sum()
}

/// The password in `scheme://user:password@host`, if the host is not this machine or a sample.
fn password_in_address(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("://")?;
    let end = rest.find(|c: char| c.is_whitespace() || "\"'`<>)".contains(c)).unwrap_or(rest.len());
    let (user, host) = rest[..end].split_once('@')?;
    let (_, password) = user.split_once(':')?;
    let is_ours = ["localhost", "127.0.0.1", "[::1]", "example."]
        .iter()
        .any(|sample| host.starts_with(sample) || host.contains(".example"));
    let is_variable = password.contains(['$', '{', '<', '%', '*']);
    let is_sample = ["password", "passwd", "pass", "secret", "postgres", "root", "user", "test"]
        .contains(&password.to_ascii_lowercase().as_str());
    let counts = password.chars().count() >= 6 && !is_ours && !is_variable && !is_sample;
    counts.then_some(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(line: &str) -> bool {
        likely(line, |_| false).is_some()
    }

    #[test]
    fn random_values_of_promising_names_are_found() {
        for line in [
            "API_KEY=9f8e7d6c5b4a39281706f5e4d3c2b1a0",
            "  \"clientSecret\": \"Zx8vQ2mN7pLk4RtY\",",
            "const AUTH_TOKEN: &str = \"q7Rz-4Tn_Lw9xKd2\";",
            "db_password: 'mV3!kQ9zXw7p'",
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzQ8tRkLm1p",
            "secret := \"Zx8vQ2mN7pLk4RtY\"",
            "url = \"postgres://app:s3cr3t-Pw9@db.internal:5432/app\"",
        ] {
            assert!(looks(line), "{line}");
        }
    }

    #[test]
    fn code_words_and_samples_are_let_alone() {
        for line in [
            "let token = self.next_token();",
            "token: String::from_utf8_lossy(bytes),",
            "password = os.environ[\"DB_PASSWORD_2\"]",
            "API_KEY=${API_KEY_FROM_VAULT_2}",
            "secret = \"your-secret-goes-here-123\"",
            "api_key: \"<put it here 12345>\"",
            "the token is returned by the server in 2 steps",
            "const TOKENS_PER_MINUTE_MAX = 60000000000",
            "token_name = \"token-for-the-2nd-request\"",
            "commit = 9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c",
            "secret_hash = \"9f8e7d6c5b4a\"",
            "postgres://app:password@db.internal/app",
            "postgres://app:s3cr3t-Pw9@localhost/app",
            "https://user:${TOKEN_2_USE}@host.org/",
            "see https://docs.rs/a@1.0:b",
            "integrity sha512-9f8e7d6c5b4a39281706f5e4d3c2b1a0==",
        ] {
            assert!(!looks(line), "{line}");
        }
    }

    /// Lines come from agents, in every language and encoding.
    #[test]
    fn strange_lines_are_read_without_harm() {
        for line in
            ["", "secret", "secret=", "secret=\"", "sécret=é", "töken = 'ä€", "://:@", "ſecret=K"]
        {
            assert!(!looks(line), "{line}");
        }
    }
}

//! Lines of text from programs: bounded, valid, and without colours.

use kapelle_core::limits;
use serde::de::DeserializeOwned;

use super::Unreadable;

/// A longer line is a dump; its beginning says what it is.
const LINE_CHARS_MAX: usize = 20_000;

const ESCAPE: char = '\u{1b}';

/// The text without the mark that some programs put before it.
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Lines as a person would see them, one at a time.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = String> + '_ {
    without_mark(bytes).split(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A character has at most four bytes.
        let line = &line[..line.len().min(LINE_CHARS_MAX * 4)];
        plain(&String::from_utf8_lossy(line))
    })
}

/// The text without sequences that set colours or move the cursor.
pub fn plain(text: &str) -> String {
    if !text.contains(ESCAPE) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != ESCAPE {
            out.push(c);
            continue;
        }
        // `ESC [ … letter`; other sequences have one character.
        if chars.next() == Some('[') {
            chars.by_ref().find(char::is_ascii_alphabetic);
        }
    }
    out
}

/// Adds to a message, up to what is kept of one.
pub fn append(message: &mut String, more: &str) {
    let room = limits::TEST_MESSAGE_CHARS_MAX.saturating_sub(message.len());
    message.push_str(limits::head(more, room));
}

/// Seconds as programs write them, in milliseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
pub fn millis(seconds: f64) -> Option<u64> {
    /// Longer than any check may run.
    const SECONDS_MAX: f64 = 1e9;
    (0.0..=SECONDS_MAX).contains(&seconds).then(|| (seconds * 1_000.0).round() as u64)
}

/// The JSON objects among the lines, and the other lines.
pub enum Line<T> {
    Object(T),
    Other(String),
}

pub fn json_lines<T: DeserializeOwned>(bytes: &[u8]) -> impl Iterator<Item = Line<T>> + '_ {
    let read = |line: &[u8]| {
        let object = line.trim_ascii();
        match object.first() {
            Some(b'{') => serde_json::from_slice(object).ok().map(Line::Object),
            _ => None,
        }
        .unwrap_or_else(|| Line::Other(lines(line).next().unwrap_or_default()))
    };
    without_mark(bytes).split(|byte| *byte == b'\n').map(read)
}

/// The first JSON document; other programs may have printed lines before and behind it.
pub fn document<T: DeserializeOwned>(
    bytes: &[u8],
    expected: &'static str,
) -> Result<T, Unreadable> {
    let bytes = without_mark(bytes);
    let starts = |at: &usize| *at == 0 || bytes[at - 1] == b'\n';
    let objects = (0..bytes.len()).filter(|at| bytes[*at] == b'{').filter(starts);
    let mut wrong = String::from("there is no object");
    for at in objects.take(DOCUMENT_STARTS_MAX) {
        let mut reader = serde_json::Deserializer::from_slice(&bytes[at..]);
        match T::deserialize(&mut reader) {
            Ok(document) => return Ok(document),
            Err(error) => wrong = error.to_string(),
        }
    }
    Err(Unreadable::Malformed { expected, message: wrong })
}

/// Lines before a document that look like its beginning; each costs a try.
const DOCUMENT_STARTS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_taken_away() {
        assert_eq!(plain("\u{1b}[1;31mFAILED\u{1b}[0m a\u{1b}"), "FAILED a");
        let read: Vec<String> = lines(b"\xef\xbb\xbfa\r\n\xffb\n").collect();
        assert_eq!(read, ["a", "\u{fffd}b", ""]);
    }

    #[test]
    fn only_sane_times_are_times() {
        assert_eq!(millis(0.0125), Some(13));
        assert_eq!((millis(-1.0), millis(f64::NAN), millis(1e300)), (None, None, None));
    }
}

//! XML in one pass: elements open, text comes, elements close.
//!
//! Entities that a document defines itself are not followed, so none can grow.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::Unreadable;
use super::text::without_mark;

/// Reports are some six levels deep.
pub const DEPTH_MAX: usize = 100;

/// What the reader of a format does with the pieces.
pub trait Visit {
    fn open(&mut self, name: &str, attributes: &Attributes<'_>);
    fn text(&mut self, text: &str);
    fn close(&mut self, name: &str);
}

#[derive(Debug)]
pub struct Attributes<'a>(&'a BytesStart<'a>);

impl Attributes<'_> {
    /// An attribute, with its references resolved where they can be.
    pub fn get(&self, name: &str) -> Option<String> {
        // Without checks for doubles: those compare each with each.
        let mut all = self.0.attributes();
        let found = all
            .with_checks(false)
            .flatten()
            .find(|attribute| attribute.key.local_name().as_ref() == name)?;
        let value = found.normalized_value(XmlVersion::Implicit1_0);
        Some(value.map_or_else(|_| found.value.to_string(), std::borrow::Cow::into_owned))
    }

    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.trim().parse().ok()
    }
}

/// Reads a document; `root` is what it has to begin with, one of several.
pub fn read(
    bytes: &[u8],
    roots: &[&str],
    expected: &'static str,
    visit: &mut impl Visit,
) -> Result<(), Unreadable> {
    let text = String::from_utf8_lossy(without_mark(bytes));
    let malformed = |message: String| Unreadable::Malformed { expected, message };
    let mut reader = Reader::from_str(&text);
    reader.config_mut().expand_empty_elements = true;
    let mut depth = 0_usize;
    loop {
        let event = reader
            .read_event()
            .map_err(|e| malformed(format!("{e} at byte {}", reader.error_position())))?;
        match event {
            Event::Start(start) => {
                let name = start.local_name();
                let name: &str = name.as_ref();
                if depth == 0 && !roots.contains(&name) {
                    return Err(malformed(format!("it begins with <{}>", short(name))));
                }
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(Unreadable::TooDeep { limit: DEPTH_MAX });
                }
                visit.open(name, &Attributes(&start));
            }
            Event::End(end) => {
                depth = depth.saturating_sub(1);
                visit.close(end.local_name().as_ref());
            }
            Event::Text(text) => visit.text(&text.xml_content(XmlVersion::Implicit1_0)),
            Event::CData(text) => visit.text(&text.xml_content(XmlVersion::Implicit1_0)),
            Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                Ok(Some(c)) => visit.text(c.encode_utf8(&mut [0; 4])),
                _ => visit.text(predefined(&reference)),
            },
            Event::Eof if depth > 0 => return Err(malformed("it ends too early".into())),
            Event::Eof => return Ok(()),
            Event::Empty(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_) => {}
        }
    }
}

fn predefined(name: &str) -> &'static str {
    match name {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "quot" => "\"",
        "apos" => "'",
        _ => "\u{fffd}",
    }
}

fn short(name: &str) -> String {
    name.chars().take(40).collect()
}

//! Coverage: lcov's records and Cobertura's XML.

use kapelle_core::outcome::{Coverage, Outcome};

use super::xml::{self, Attributes, Visit};
use super::{Unreadable, text};

pub fn lcov(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let mut sum = Coverage::default();
    let mut file = File::default();
    let mut files = 0_u64;
    for line in text::lines(bytes) {
        let line = line.trim();
        if line == "end_of_record" {
            file.add_to(&mut sum);
            file = File::default();
            files += 1;
        } else if let Some((key, value)) = line.split_once(':') {
            file.take(key, value);
        }
    }
    if files == 0 {
        return Err(Unreadable::Empty { expected: "record of a file" });
    }
    Ok(Outcome { coverage: Some(sum), ..Outcome::default() })
}

/// One file of the report: its sums where it gives them, else what its lines say.
#[derive(Default)]
struct File {
    given: Coverage,
    has_sums: bool,
    lines: u64,
    lines_hit: u64,
}

impl File {
    fn take(&mut self, key: &str, value: &str) {
        let number = value.trim().parse::<u64>().ok();
        match (key, number) {
            ("LF", Some(lines)) => (self.given.lines, self.has_sums) = (lines, true),
            ("LH", Some(hit)) => self.given.lines_covered = hit,
            ("BRF", Some(branches)) => self.given.branches = branches,
            ("BRH", Some(hit)) => self.given.branches_covered = hit,
            ("DA", _) => {
                let hits = value.split(',').nth(1).and_then(|hits| hits.trim().parse::<i64>().ok());
                self.lines += 1;
                self.lines_hit += u64::from(hits.is_some_and(|hits| hits > 0));
            }
            _ => {}
        }
    }

    fn add_to(&self, sum: &mut Coverage) {
        let (lines, hit) = match self.has_sums {
            true => (self.given.lines, self.given.lines_covered),
            false => (self.lines, self.lines_hit),
        };
        sum.lines = sum.lines.saturating_add(lines);
        sum.lines_covered = sum.lines_covered.saturating_add(hit.min(lines));
        sum.branches = sum.branches.saturating_add(self.given.branches);
        let hit = self.given.branches_covered.min(self.given.branches);
        sum.branches_covered = sum.branches_covered.saturating_add(hit);
    }
}

pub fn cobertura(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let mut report = Report::default();
    xml::read(bytes, &["coverage"], "a Cobertura report", &mut report)?;
    let coverage = report.given.unwrap_or(report.counted);
    if coverage.lines == 0 && report.given.is_none() {
        return Err(Unreadable::Empty { expected: "line" });
    }
    Ok(Outcome { coverage: Some(coverage), ..Outcome::default() })
}

#[derive(Default)]
struct Report {
    given: Option<Coverage>,
    counted: Coverage,
    /// Lines of a method are lines of its class once more.
    methods: u32,
}

impl Visit for Report {
    fn open(&mut self, name: &str, attributes: &Attributes<'_>) {
        match name {
            "coverage" => {
                let sums = attributes.number("lines-covered").zip(attributes.number("lines-valid"));
                self.given = sums.map(|(covered, lines): (u64, u64)| Coverage {
                    lines_covered: covered.min(lines),
                    lines,
                    branches_covered: attributes.number("branches-covered").unwrap_or_default(),
                    branches: attributes.number("branches-valid").unwrap_or_default(),
                });
            }
            "method" => self.methods += 1,
            "line" if self.methods == 0 => {
                let hits: u64 = attributes.number("hits").unwrap_or_default();
                self.counted.lines += 1;
                self.counted.lines_covered += u64::from(hits > 0);
            }
            _ => {}
        }
    }

    fn text(&mut self, _: &str) {}

    fn close(&mut self, name: &str) {
        if name == "method" {
            self.methods = self.methods.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(read: Result<Outcome, Unreadable>) -> (u64, u64) {
        let coverage = read.unwrap().coverage.unwrap();
        (coverage.lines_covered, coverage.lines)
    }

    #[test]
    fn without_sums_the_lines_are_counted() {
        let record =
            b"SF:a\nDA:1,2\nDA:2,0\nDA:3,-1\nend_of_record\nSF:b\nLF:9\nLH:99\nend_of_record";
        assert_eq!(covered(lcov(record)), (10, 12));
        let xml = b"<coverage><class><methods><method><line hits='1'/></method></methods>\
            <lines><line hits='1'/><line hits='0'/></lines></class></coverage>";
        assert_eq!(covered(cobertura(xml)), (1, 2));
    }

    #[test]
    fn a_report_about_nothing_is_none() {
        assert!(lcov(b"").is_err() && lcov(b"TN:\n").is_err());
        assert!(cobertura(b"<coverage/>").is_err());
    }
}

//! `lizard --csv`: the complexity of every function, for some thirty languages.

use kapelle_core::limits;
use kapelle_core::outcome::{Complexity, Function, Outcome};

use super::{Unreadable, text};

/// The columns: complexity, file, function, first line.
const COLUMNS: [usize; 4] = [1, 6, 7, 9];

pub fn parse(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let mut complexity = Complexity::default();
    for line in text::lines(bytes) {
        // The heading and lines of other programs have no numbers there.
        if let Some(function) = function(&line) {
            complexity.add(function);
        }
    }
    if complexity.functions == 0 {
        return Err(Unreadable::Empty { expected: "line of lizard" });
    }
    Ok(Outcome { complexity: Some(complexity), ..Outcome::default() })
}

fn function(line: &str) -> Option<Function> {
    let cells = cells(line);
    let [cyclomatic, file, name, first] = COLUMNS.map(|column| cells.get(column));
    Some(Function {
        cyclomatic: cyclomatic?.parse().ok()?,
        name: limits::head(name?, limits::TEST_NAME_CHARS_MAX).to_owned(),
        file: limits::head(file?, limits::PATH_CHARS_MAX).trim_start_matches("./").to_owned(),
        line: first?.parse().ok()?,
    })
}

/// The cells of a line; quotes may hold commas, and doubled quotes.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => {
                if let Some(cell) = cells.last_mut() {
                    cell.push(c);
                }
            }
        }
    }
    cells
}

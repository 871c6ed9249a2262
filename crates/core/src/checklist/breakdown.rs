//! What an agent says when it is asked to break a task into steps: numbered or bulleted lines
//! among prose. Outside data: lines that are no list items are skipped.

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry<'t> {
    text: &'t str,
    /// The step, from 1, that `2.3` names as its parent.
    parent: Option<usize>,
    indented: bool,
}

/// All steps, in order.
#[must_use]
pub fn steps(breakdown: &str) -> Vec<String> {
    breakdown.lines().filter_map(entry).map(|entry| entry.text.to_owned()).collect()
}

/// The required actions, each followed by the sub-steps that the breakdown has for it. A line
/// belongs to an action by its number (`2.1`), or by standing indented under the action's own text
/// or number; what belongs to none comes last.
#[must_use]
pub fn under(actions: &[String], breakdown: &str) -> Vec<String> {
    let mut own: Vec<Vec<&str>> = vec![Vec::new(); actions.len()];
    let mut rest = Vec::new();
    let mut current = None;
    for entry in breakdown.lines().filter_map(entry) {
        let same = |action: &String| action.trim().eq_ignore_ascii_case(entry.text);
        let numbered = entry.parent.and_then(|number| number.checked_sub(1));
        let parent = match numbered.filter(|index| *index < actions.len()) {
            Some(index) => Some(index),
            None if entry.indented => current,
            None => {
                current = actions.iter().position(same);
                if current.is_some() {
                    continue;
                }
                None
            }
        };
        if actions.iter().any(same) {
            continue;
        }
        match parent.and_then(|index| own.get_mut(index)) {
            Some(own) => own.push(entry.text),
            None => rest.push(entry.text),
        }
    }
    let mut texts = Vec::new();
    for (action, own) in actions.iter().zip(own) {
        texts.push(action.clone());
        texts.extend(own.into_iter().map(str::to_owned));
    }
    texts.extend(rest.into_iter().map(str::to_owned));
    texts
}

fn entry(line: &str) -> Option<Entry<'_>> {
    let trimmed = line.trim_start();
    let indented = line.len() - trimmed.len() >= 2;
    let (text, parent) = match trimmed.chars().next()? {
        '-' | '*' | '•' => {
            let rest = trimmed.trim_start_matches(['-', '*', '•']);
            (rest.strip_prefix(' ')?, None)
        }
        '0'..='9' => {
            let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (number, rest) = trimmed.split_at(end);
            let rest = match rest.strip_prefix(')') {
                Some(rest) => rest,
                // `3 apples` is prose; `3. apples` and `3.1 apples` are items.
                None if number.contains('.') => rest,
                None => return None,
            };
            let mut parts = number.split('.').filter(|part| !part.is_empty());
            let first = parts.next().and_then(|part| part.parse().ok());
            let nested = parts.next().is_some();
            (rest.strip_prefix(' ')?, first.filter(|_| nested))
        }
        _ => return None,
    };
    let text = ["[ ]", "[x]", "[X]"]
        .iter()
        .find_map(|mark| text.trim_start().strip_prefix(mark))
        .unwrap_or(text);
    let text = text.trim();
    (!text.is_empty()).then_some(Entry { text, parent, indented })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_found_among_prose() {
        let said = "This task is complex. Breaking into sub-steps...\n\nHere is it:\n\
            1. Research the API\n2) Create client\n- Add auth\n* [ ] Handle streaming\n\
            3 apples are no step\n4.\n--\n   • Write docs\n10.2 Count";
        let expected = [
            "Research the API",
            "Create client",
            "Add auth",
            "Handle streaming",
            "Write docs",
            "Count",
        ];
        assert_eq!(steps(said), expected);
    }

    #[test]
    fn sub_steps_stand_behind_their_action() {
        let actions = ["Create client".to_owned(), "Add tests".to_owned()];
        let said = "- create client\n  - constructor\n  - auth header\n2.1 fixture\n- Add tests\n\
            - Deploy\n  - to staging\n9.1 nowhere";
        let expected = [
            "Create client",
            "constructor",
            "auth header",
            "Add tests",
            "fixture",
            "Deploy",
            "to staging",
            "nowhere",
        ];
        assert_eq!(under(&actions, said), expected);
        assert_eq!(under(&actions, ""), actions);
    }
}

//! A value of a table, the same for every engine of storage.

use std::borrow::Cow;

use kapelle_core::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Null,
    Int(i64),
    /// Borrowed for the names that columns list, which are most of what is written.
    Text(Cow<'static, str>),
}

/// For numbers that are only shown or compared: databases count to 2^63.
pub(crate) fn clamped(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Value {
    /// One of the names that a column lists.
    pub(crate) fn name(name: &'static str) -> Value {
        Value::Text(Cow::Borrowed(name))
    }

    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Null | Value::Text(_) => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Null | Value::Int(_) => None,
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Int(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Int(clamped(number))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Int(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Int(flag.into())
    }
}

impl From<Timestamp> for Value {
    fn from(at: Timestamp) -> Value {
        Value::from(at.0)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        // PostgreSQL cannot keep a NUL in a text, and no person would see it.
        let text = if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text };
        Value::Text(Cow::Owned(text))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::from(text.to_owned())
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Value {
        Value::from(text.as_str())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_database_holds_are_cut() {
        assert_eq!(Value::from(u64::MAX), Value::Int(i64::MAX));
        assert_eq!(Value::from(7_u64), Value::Int(7));
    }

    #[test]
    fn a_text_that_postgres_would_refuse_is_made_harmless() {
        assert_eq!(Value::from("a\0b"), Value::Text("a\u{fffd}b".into()));
    }
}

//! The command line, read by hand: a parser crate would double the time to build xtask.

use std::collections::VecDeque;

use crate::error::{Error, Result};

#[derive(Debug)]
pub struct Args(VecDeque<String>);

impl Args {
    pub fn from_env() -> Result<Args> {
        let words = std::env::args_os().skip(1).map(|word| {
            word.into_string()
                .map_err(|word| Error::usage(format!("`{}` is not UTF-8", word.display())))
        });
        Ok(Args(words.collect::<Result<_>>()?))
    }

    /// The next word, whatever it is.
    pub fn next(&mut self) -> Option<String> {
        self.0.pop_front()
    }

    /// Whether `--help` stands before a `--`: what follows `--` is meant for another program.
    pub fn asks_for_help(&self) -> bool {
        let ours = self.0.iter().take_while(|word| *word != "--");
        ours.into_iter().any(|word| word == "--help" || word == "-h")
    }

    /// Takes `name` out, and says whether it was there.
    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|word| word != name);
        self.0.len() < before
    }

    /// Takes `name VALUE` or `name=VALUE` out.
    pub fn value(&mut self, name: &str) -> Result<Option<String>> {
        let joined = format!("{name}=");
        let Some(at) = self.0.iter().position(|word| word == name || word.starts_with(&joined))
        else {
            return Ok(None);
        };
        let word = self.0.remove(at).unwrap_or_default();
        if let Some(value) = word.strip_prefix(&joined) {
            return Ok(Some(value.to_owned()));
        }
        match self.0.remove(at) {
            Some(value) => Ok(Some(value)),
            None => Err(Error::usage(format!("`{name}` needs a value"))),
        }
    }

    pub fn number(&mut self, name: &str) -> Result<Option<u64>> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        match value.replace('_', "").parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Error::usage(format!("`{name} {value}`: a whole number is expected"))),
        }
    }

    /// Everything that is left, for the program that we start. A leading `--` is ours.
    pub fn pass_on(mut self) -> Vec<String> {
        if self.0.front().is_some_and(|word| word == "--") {
            self.0.pop_front();
        }
        self.0.into()
    }

    /// Nothing may be left: a word that nobody read is a mistake that somebody should see.
    pub fn finish(self) -> Result {
        match self.0.front() {
            None => Ok(()),
            Some(word) => Err(Error::usage(format!("`{word}` is not understood here"))
                .hint("add --help to see what is")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn options_are_taken_in_any_order_and_spelling() {
        let mut args = args("--from=7 --quick --seeds 1_000");
        assert_eq!(args.number("--seeds").unwrap(), Some(1000));
        assert_eq!(args.number("--from").unwrap(), Some(7));
        assert!(args.flag("--quick"));
        assert!(!args.flag("--quick"));
        args.finish().unwrap();
    }

    #[test]
    fn mistakes_are_named() {
        let said = |outcome: Result| outcome.unwrap_err().to_string();
        assert!(said(args("--sedes 3").finish()).contains("`--sedes` is not understood"));
        assert!(said(args("--seeds").number("--seeds").map(drop)).contains("needs a value"));
        assert!(said(args("--seeds x").number("--seeds").map(drop)).contains("whole number"));
    }

    /// `cargo xtask demo --json` and `cargo xtask demo -- --json` mean the same.
    #[test]
    fn words_for_the_product_need_no_separator() {
        assert_eq!(args("--json -- --x").pass_on(), ["--json", "--", "--x"]);
        assert_eq!(args("-- --json").pass_on(), ["--json"]);
    }

    #[test]
    fn help_after_the_separator_belongs_to_the_product() {
        assert!(args("--help").asks_for_help());
        assert!(!args("-- --help").asks_for_help());
    }
}

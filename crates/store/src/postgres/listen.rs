//! Word from the server: somebody appended, or wants to know whether the leader is alive.

use std::time::{Duration, Instant};

use super::link::{ALIVE_ANSWER, ALIVE_QUESTION, Link, Use};
use crate::error::Error;
use crate::location::Server;

/// Hears what is said about one project, on a connection of its own.
#[derive(Debug)]
pub(crate) struct Listener {
    link: Link,
}

impl Listener {
    pub(crate) fn start(server: &Server) -> Result<Listener, Error> {
        let link = Link::connect(server, Use::Listening)?;
        link.batch(&format!("LISTEN {}", server.schema))?;
        Ok(Listener { link })
    }

    /// Waits until somebody appended; false if nobody did in time.
    pub(crate) fn wait(&self, patience: Duration) -> Result<bool, Error> {
        let told = self.hear(patience, |notice| notice.starts_with("head "))?;
        // What came in the meantime says the same.
        while told && self.link.notice(Duration::ZERO)?.is_some() {}
        Ok(told)
    }

    /// Asks the leader whether it is alive; false if it does not answer in time.
    pub(super) fn ask(&self, schema: &str, patience: Duration) -> Result<bool, Error> {
        let question = format!("{} {:?}", std::process::id(), std::thread::current().id());
        say(&self.link, schema, &format!("{ALIVE_QUESTION}{question}"))?;
        let answer = format!("{ALIVE_ANSWER}{question}");
        self.hear(patience, |notice| notice == answer)
    }

    fn hear(&self, patience: Duration, wanted: impl Fn(&str) -> bool) -> Result<bool, Error> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.link.notice(left)? {
                Some(notice) if wanted(&notice) => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
        }
    }
}

fn say(link: &Link, schema: &str, what: &str) -> Result<(), Error> {
    let told = vec![Box::new(schema.to_owned()) as _, Box::new(what.to_owned()) as _];
    link.query("SELECT pg_notify($1, $2)", told).map(drop)
}

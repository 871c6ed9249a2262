//! Word from the server: somebody appended, or wants to know whether the leader is alive.

use std::time::{Duration, Instant};

use super::link::{Link, Use};
use super::sentinel::{ALIVE_ANSWER, ALIVE_QUESTION};
use crate::error::Error;
use crate::location::Server;

/// A sentinel needs less than this to connect again.
pub(super) const ASKED_AGAIN: Duration = Duration::from_millis(250);

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

    /// Asks the leader whether it is alive; false if it does not answer in time. It is asked more
    /// than once: its sentinel may have lost its connection just then, and be on its way back.
    pub(super) fn ask(&self, schema: &str, patience: Duration) -> Result<bool, Error> {
        let question = format!("{} {:?}", std::process::id(), std::thread::current().id());
        let answer = format!("{ALIVE_ANSWER}{question}");
        let until = Instant::now() + patience;
        loop {
            say(&self.link, schema, &format!("{ALIVE_QUESTION}{question}"))?;
            let left = until.saturating_duration_since(Instant::now());
            if self.hear(left.min(ASKED_AGAIN), |notice| notice == answer)? {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
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

//! The log of a process: its beginning and its end, whatever it writes in between.
//!
//! The beginning goes to the file as it comes, so that it can be followed. Past that, only the
//! end is held, in memory, and joins the file when the process has ended.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt;

use super::TAIL_CHARS_MAX;

/// Where set-up and the first error are.
pub const HEAD_BYTES_MAX: u64 = 4 << 20;

/// Where the last error is. Held in memory for every process that writes a lot.
pub const TAIL_BYTES_MAX: usize = 256 << 10;

const CHAR_BYTES_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct Log {
    file: File,
    written: u64,
    last: Last,
    error: Option<String>,
}

/// The end of the output so far, for whoever asks while the process runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Last(Arc<Mutex<VecDeque<u8>>>);

impl Last {
    fn take(&self, bytes: &[u8]) {
        let mut last = self.lock();
        last.extend(&bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..]);
        let surplus = last.len().saturating_sub(TAIL_BYTES_MAX);
        last.drain(..surplus);
    }

    /// The last characters, whole ones.
    pub fn tail(&self) -> String {
        tail(self.lock().make_contiguous())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    pub async fn create(path: &Path) -> io::Result<Log> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path).await?;
        Ok(Log { file, written: 0, last: Last::default(), error: None })
    }

    /// Takes what the process wrote. A log that cannot be written is no reason to stop reading.
    pub async fn take(&mut self, bytes: &[u8]) {
        let room = HEAD_BYTES_MAX.saturating_sub(self.written);
        let head = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        if head > 0 {
            self.write(&bytes[..head]).await;
        }
        self.written += bytes.len() as u64;
        self.last.take(bytes);
    }

    pub fn last(&self) -> Last {
        self.last.clone()
    }

    /// Completes the file, and gives the tail and what went wrong.
    pub async fn finish(mut self) -> (String, Option<String>) {
        let past_head = self.written.saturating_sub(HEAD_BYTES_MAX);
        let last: Vec<u8> = self.last.lock().iter().copied().collect();
        let end = usize::try_from(past_head).unwrap_or(usize::MAX).min(last.len());
        let dropped = past_head - end as u64;
        if dropped > 0 {
            self.write(format!("\n[kapelle: {dropped} bytes dropped]\n").as_bytes()).await;
        }
        self.write(&last[last.len() - end..]).await;
        (tail(&last), self.error)
    }

    async fn write(&mut self, bytes: &[u8]) {
        if self.error.is_some() {
            return;
        }
        // Flushed at once: people follow the file while the process runs.
        let written = match self.file.write_all(bytes).await {
            Ok(()) => self.file.flush().await,
            failed => failed,
        };
        self.error = written.err().map(|error| error.to_string());
    }
}

/// The last characters, whole ones.
fn tail(bytes: &[u8]) -> String {
    let mut start = bytes.len().saturating_sub(TAIL_CHARS_MAX * CHAR_BYTES_MAX);
    let continues = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000);
    while start > 0 && continues(start) {
        start += 1;
    }
    let text = String::from_utf8_lossy(&bytes[start..]);
    let surplus = text.chars().count().saturating_sub(TAIL_CHARS_MAX);
    text.chars().skip(surplus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tail goes into prompts and pages; half a character would show as garbage there.
    #[test]
    fn the_tail_begins_with_a_whole_character() {
        let text = "ab".to_owned() + &"ü€".repeat(4_000);
        assert_eq!(tail(text.as_bytes()), "ü€".repeat(TAIL_CHARS_MAX / 2));
        assert_eq!(tail("kurz ✓".as_bytes()), "kurz ✓");
    }

    /// A process that writes without end must not fill the disk, and its last words matter most.
    #[tokio::test]
    async fn a_log_keeps_its_beginning_and_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::create(&path).await.unwrap();
        let block = vec![b'x'; 1 << 20];
        log.take(b"first").await;
        for _ in 0..6 {
            log.take(&block).await;
        }
        log.take(b"last").await;
        let (tail, error) = log.finish().await;
        assert!(tail.ends_with("xlast") && error.is_none());
        let written = std::fs::read_to_string(&path).unwrap();
        let dropped = (6 << 20) + 9 - HEAD_BYTES_MAX - TAIL_BYTES_MAX as u64;
        let note = format!("\n[kapelle: {dropped} bytes dropped]\n");
        assert!(written.starts_with("firstx") && written.ends_with("xlast"));
        assert!(written.contains(&note));
        assert_eq!(written.len(), HEAD_BYTES_MAX as usize + TAIL_BYTES_MAX + note.len());
    }
}

//! What a git process wrote, within bounds, and how it ended.
//!
//! Invariant: both pipes are read to their end whatever the amount, so git never blocks on us.

use std::process::ExitStatus;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;

use super::{STDERR_BYTES_MAX, STDOUT_BYTES_MAX};

const CHUNK_BYTES: usize = 16 << 10;

pub(super) struct Collected {
    pub status: ExitStatus,
    /// Nothing if it was more than the limit: half a list is a wrong list.
    pub stdout: Option<Vec<u8>>,
    /// The end of it, where git says why it failed.
    pub stderr: String,
}

pub(super) async fn collect(child: &mut Child) -> std::io::Result<Collected> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr, status) = tokio::join!(head(out), tail(err), child.wait());
    let stderr = String::from_utf8_lossy(&stderr?).trim().to_owned();
    Ok(Collected { status: status?, stdout: stdout?, stderr })
}

async fn head(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<Option<Vec<u8>>> {
    let (mut all, mut within) = (Vec::new(), true);
    each_chunk(from, |chunk| {
        within &= all.len() + chunk.len() <= STDOUT_BYTES_MAX;
        if within {
            all.extend_from_slice(chunk);
        }
    })
    .await?;
    Ok(within.then_some(all))
}

async fn tail(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut last = Vec::new();
    each_chunk(from, |chunk| {
        last.extend_from_slice(chunk);
        let surplus = last.len().saturating_sub(STDERR_BYTES_MAX);
        last.drain(..surplus);
    })
    .await?;
    Ok(last)
}

async fn each_chunk(
    from: Option<impl AsyncRead + Unpin>,
    mut take: impl FnMut(&[u8]),
) -> std::io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match from.read(&mut buffer).await? {
            0 => return Ok(()),
            count => take(&buffer[..count]),
        }
    }
}

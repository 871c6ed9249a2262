//! How much a process may leave on the disk.
//!
//! File systems have quotas for users, not for directories, so the places are weighed. Weighing
//! walks over every file; it is done only when the file system has grown by a good part of what
//! is allowed since the last time.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// How often the file system is asked how full it is; that is one call.
const TICK: Duration = Duration::from_secs(1);

/// Weighing begins when this part of the quota was written, by anybody, since the last time.
const GROWTH_PART: u64 = 16;

/// Others may free as much as we write, and nothing seems to change.
const LOOK_ANYWAY: Duration = Duration::from_secs(10);

/// However fast the disk fills, at most this part of the time is spent on weighing.
const REST_FACTOR: u32 = 9;

/// What may lie in some places together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    pub places: Vec<PathBuf>,
    pub bytes_max: u64,
    pub files_max: u64,
}

/// Looks at the places until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    passed: Option<oneshot::Receiver<String>>,
    task: AbortHandle,
}

impl Watch {
    pub fn start(quota: Quota) -> Watch {
        let (tell, passed) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut scales = Scales::new(quota);
            loop {
                tokio::time::sleep(TICK).await;
                if let Some(reason) = scales.look().await {
                    let _nobody_waits = tell.send(reason);
                    return;
                }
            }
        });
        Watch { passed: Some(passed), task: task.abort_handle() }
    }

    /// Ends when the quota is passed, and says how.
    pub async fn passed(&mut self) -> String {
        if let Some(passed) = &mut self.passed
            && let Ok(reason) = passed.await
        {
            return reason;
        }
        // The watch is gone; it will not say anything any more.
        self.passed = None;
        std::future::pending().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends when the quota is passed; without one, never.
pub(super) async fn passed(quota: &mut Option<Watch>) -> String {
    match quota {
        Some(watch) => watch.passed().await,
        None => std::future::pending().await,
    }
}

#[derive(Debug)]
struct Scales {
    quota: Quota,
    /// How full the file system was when the places were last weighed.
    weighed_at: Fill,
    not_before: Instant,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Fill {
    bytes: u64,
    files: u64,
}

impl Scales {
    fn new(quota: Quota) -> Scales {
        let weighed_at = fill(&quota);
        Scales { quota, weighed_at, not_before: Instant::now() }
    }

    /// What is wrong with the places, if anything is.
    async fn look(&mut self) -> Option<String> {
        let now = fill(&self.quota);
        let moved = |now: u64, then: u64, max: u64| now.abs_diff(then) > max / GROWTH_PART;
        let worth_it = moved(now.bytes, self.weighed_at.bytes, self.quota.bytes_max)
            || moved(now.files, self.weighed_at.files, self.quota.files_max)
            || Instant::now() >= self.not_before + LOOK_ANYWAY;
        if !worth_it || Instant::now() < self.not_before {
            return None;
        }
        let (quota, begun) = (self.quota.clone(), Instant::now());
        let weighed = tokio::task::spawn_blocking(move || weigh(&quota)).await.unwrap_or_default();
        self.not_before = Instant::now() + begun.elapsed() * REST_FACTOR;
        self.weighed_at = now;
        let Quota { bytes_max, files_max, .. } = self.quota;
        if weighed.bytes > bytes_max {
            return Some(format!("more than {bytes_max} bytes were written"));
        }
        (weighed.files > files_max).then(|| format!("more than {files_max} files were made"))
    }
}

/// Of the file system that the first place is on; all places of a box are on the same one.
fn fill(quota: &Quota) -> Fill {
    let Some(found) = quota.places.first().and_then(|place| statvfs(place).ok()) else {
        return Fill::default();
    };
    Fill {
        bytes: (found.blocks() - found.blocks_free()).saturating_mul(found.fragment_size()),
        files: found.files().saturating_sub(found.files_free()),
    }
}

/// Stops counting as soon as the quota is passed.
fn weigh(quota: &Quota) -> Fill {
    let mut weight = Fill::default();
    let mut open: Vec<PathBuf> = quota.places.clone();
    while let Some(place) = open.pop() {
        let Ok(entries) = fs::read_dir(&place) else {
            add(&mut weight, &place);
            continue;
        };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    weight.files += 1;
                    open.push(entry.path());
                }
                _ => add(&mut weight, &entry.path()),
            }
        }
        if weight.bytes > quota.bytes_max || weight.files > quota.files_max {
            break;
        }
    }
    weight
}

fn add(weight: &mut Fill, path: &Path) {
    /// The unit of `st_blocks`, whatever the file system's own is.
    const BLOCK_BYTES: u64 = 512;
    if let Ok(known) = path.symlink_metadata() {
        weight.files += 1;
        weight.bytes = weight.bytes.saturating_add(known.blocks() * BLOCK_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with holes takes no room; many small ones do, and each is a file.
    #[test]
    fn what_takes_room_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("holes")).unwrap();
        file.set_len(1 << 30).unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/full"), vec![1; 100_000]).unwrap();
        let places = vec![dir.path().to_owned()];
        let weighed = weigh(&Quota { places, bytes_max: u64::MAX, files_max: u64::MAX });
        assert_eq!(weighed.files, 3);
        assert!((100_000..1 << 20).contains(&weighed.bytes), "{weighed:?}");
    }
}

//! Contents by their hash, and the garbage among them.

use std::sync::mpsc;

use kapelle_core::Seq;
use kapelle_store::{BLOB_BYTES_MAX, Error, Hash, Location, Reader, Writer, blob_hash};

use crate::{cluster, fixture};

fn asked<T: Send + 'static>(
    ask: impl FnOnce(Box<dyn FnOnce(Result<T, Error>) + Send>),
) -> Result<T, Error> {
    let (told, heard) = mpsc::channel();
    ask(Box::new(move |done| told.send(done).unwrap()));
    heard.recv().unwrap()
}

fn keep(writer: &Writer, body: &[u8], owner: &str) -> Hash {
    asked(|done| writer.keep_blob(body.to_vec(), owner, done)).unwrap()
}

fn collected(writer: &Writer) -> u64 {
    asked(|done| writer.collect_garbage(done)).unwrap()
}

fn kept(location: &Location, hash: Hash) -> Option<Vec<u8>> {
    Reader::open(location).unwrap().blob(hash).unwrap()
}

#[test]
fn a_blob_lives_as_long_as_somebody_needs_it() {
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let log = b"line one\nline \0 two \xff".to_vec();
        let hash = keep(&writer, &log, "attempt 1");
        assert_eq!(keep(&writer, &log, "attempt 2"), hash, "the same content is kept once");
        assert_eq!(hash, blob_hash(&log));
        assert_eq!(kept(&place.location, hash).as_deref(), Some(&log[..]));

        asked(|done| writer.release_blobs("attempt 1", done)).unwrap();
        assert_eq!(collected(&writer), 0, "{}: attempt 2 needs it", place.name);
        asked(|done| writer.release_blobs("attempt 2", done)).unwrap();
        assert_eq!(kept(&place.location, hash).as_deref(), Some(&log[..]), "not collected yet");
        assert_eq!(collected(&writer), 1, "{}", place.name);
        assert_eq!(kept(&place.location, hash), None);
    }
}

/// What the journal mentions was seen by somebody, and may be asked for in years.
#[test]
fn a_blob_that_a_record_mentions_is_never_garbage() {
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let (mentioned, forgotten) = (b"mentioned".as_slice(), b"forgotten".as_slice());
        let hash = keep(&writer, mentioned, "nobody");
        keep(&writer, forgotten, "nobody");
        asked(|done| writer.release_blobs("nobody", done)).unwrap();
        let mut records = fixture::history(1, 0);
        let text = serde_json::to_string(&records[1]).unwrap();
        let text = text.replace("the goal of first", &format!("as in {hash}."));
        records[1] = serde_json::from_str(&text).unwrap();
        assert!(serde_json::to_string(&records[1]).unwrap().contains(&hash.to_string()));
        asked(|done| writer.append(writer.epoch(), Seq(0), records[..2].to_vec(), done)).unwrap();
        assert_eq!(collected(&writer), 1, "{}", place.name);
        assert_eq!(kept(&place.location, hash).as_deref(), Some(mentioned));
    }
}

/// The whole journal is looked through for mentions, and nobody waits for that.
#[test]
fn an_append_does_not_wait_for_the_search_for_garbage() {
    let location = cluster::shared().project();
    let schema = fixture::schema(&location);
    let writer = Writer::open(&location).unwrap();
    keep(&writer, b"unneeded", "nobody");
    asked(|done| writer.release_blobs("nobody", done)).unwrap();
    // The search comes as far as this, and no further.
    let lock = cluster::shared().session(&schema, "BEGIN; LOCK TABLE blob_owners;");
    let (told, heard) = mpsc::channel();
    writer.collect_garbage(move |done| told.send(done).unwrap());
    let records = fixture::history(1, 0);
    asked(|done| writer.append(writer.epoch(), Seq(0), records, done)).unwrap();
    assert!(heard.try_recv().is_err(), "it is done with what is locked");
    drop(lock);
    assert_eq!(heard.recv().unwrap().unwrap(), 1);
}

/// The database itself does not let go of what somebody needs.
#[test]
fn a_blob_with_an_owner_cannot_be_deleted_by_hand() {
    let location = cluster::shared().project();
    let writer = Writer::open(&location).unwrap();
    keep(&writer, b"precious", "attempt 1");
    let refused = cluster::shared().psql(&fixture::schema(&location), "DELETE FROM blobs");
    assert!(refused.unwrap_err().contains("foreign key"), "it was deleted");
}

#[test]
fn a_blob_has_a_largest_size() {
    let place = &fixture::places()[0];
    let writer = Writer::open(&place.location).unwrap();
    let body = vec![7; BLOB_BYTES_MAX + 1];
    let refused = asked(|done| writer.keep_blob(body, "attempt 1", done)).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
}

/// A content that is not what its hash says is worse than none.
#[test]
fn a_changed_blob_is_called_damage() {
    let place = &fixture::places()[0];
    let writer = Writer::open(&place.location).unwrap();
    let hash = keep(&writer, b"as it was", "attempt 1");
    let raw = rusqlite::Connection::open(place.location.path().unwrap()).unwrap();
    assert_eq!(raw.execute("UPDATE blobs SET body = x'00'", []).unwrap(), 1);
    let found = Reader::open(&place.location).unwrap().blob(hash).unwrap_err();
    assert!(matches!(found, Error::Damaged { .. }), "{found}");
}

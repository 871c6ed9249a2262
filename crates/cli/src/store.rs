//! The store as a thing of its own: rebuild its tables, move it, take its journal out and in.

use std::fs::OpenOptions;
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;

use kapelle_store::{
    AuditError, Carried, Error, ExportError, Extent, Fingerprint, Holder, Leadership, Location,
    Reader, Was, carry_over,
};
use serde_json::json;

use crate::args::{ExportArgs, ImportArgs, MoveArgs, RebuildArgs};
use crate::look::no_journal;
use crate::output::{Exit, Problem, print, print_json, say};
use crate::project::Project;

pub async fn rebuild(args: RebuildArgs) -> Result<Exit, Problem> {
    let project = begun().await?;
    let _alone = lead(&project).await?;
    let rebuilt = match args.accept_loss {
        true => kapelle_store::accept_loss(project.location()?)?,
        false => kapelle_store::rebuild(project.location()?)?,
    };
    let wrong: Vec<&str> = rebuilt.repaired().map(|found| found.table).collect();
    if args.json {
        let (seq, tables) = (rebuilt.seq, &rebuilt.after);
        print_json(
            &json!({ "seq": seq, "equal": wrong.is_empty(), "repaired": wrong, "tables": tables,
                "search": rebuilt.search, "unsearchable": rebuilt.unsearchable,
                "views_lost": rebuilt.views_lost }),
        )?;
        return Ok(Exit::Done);
    }
    for Fingerprint { table, rows, .. } in &rebuilt.after {
        let verdict = if wrong.contains(table) { "REPAIRED" } else { "equal" };
        print(format!("{table:<18} {rows:>8} rows  {verdict}"));
    }
    if wrong.is_empty() {
        print(format!("all tables are what {} records say", rebuilt.seq));
    }
    for (was, what) in [
        (Was::Missing, "not there, and made anew"),
        (Was::Wrong, "not what the journal says, and made anew"),
    ] {
        let found = rebuilt.repaired().filter(|found| found.was == was);
        let names: Vec<&str> = found.map(|found| found.table).collect();
        if !names.is_empty() {
            say(format!("{what}: {}", names.join(", ")));
        }
    }
    if rebuilt.views_lost {
        say(
            "the tables could not be read; if there were views of your own, they have to be made again",
        );
    }
    if let Some(search) = &rebuilt.search {
        let lost = if search.lost { "; others could not be read, and are lost" } else { "" };
        say(format!("the search was not whole ({}), and is made anew", search.why));
        say(format!("{} notes and logs that only it had are kept{lost}", search.kept));
    }
    if let Some(what) = &rebuilt.unsearchable {
        say(format!("this is not searchable, and not told any more: {what}"));
        say("logs stay in .kapelle/logs");
    }
    Ok(Exit::Done)
}

pub async fn carry(args: MoveArgs) -> Result<Exit, Problem> {
    let project = begun().await?;
    let alone = lead(&project).await?;
    let from = project.location()?;
    let name = args.project.as_deref().or(project.config.store.project.as_deref());
    let to = project.place_of_store(Some(&args.to), name)?.with(project.config.store.durability());
    let _alone_there = lead_there(&to, alone.holder())?;
    let carried = carry_over(&from, &to).map_err(|error| match error {
        AuditError::Broken(broken) => Problem::new(Exit::Failed, broken)
            .hint("a broken history is not moved; restore the store from a backup, in the place of all that is there"),
        AuditError::Store(error) => error.into(),
    })?;
    // The journal is there; tables that cannot be read do not make it otherwise.
    let equal = Reader::open(&from)?.tables().is_ok_and(|tables| tables == carried.tables);
    report(&carried, &to, args.json)?;
    if carried.notes_lost {
        say("some notes and logs that only the search had could not be read here, and stay behind");
    }
    if !equal {
        let what = "the tables here did not say what the journal says; those in the new place do";
        say(format!("{what}, see `kapelle store rebuild`"));
    }
    let name = to.project().map(|name| format!(", and project = \"{name}\",")).unwrap_or_default();
    say(format!("{from} stays as it is; set [store] url to the new place{name} in kapelle.toml"));
    Ok(Exit::Done)
}

pub async fn export(args: ExportArgs) -> Result<Exit, Problem> {
    let project = begun().await?;
    let reader = Reader::open(project.location()?)?;
    let Some(path) = &args.out else {
        let mut out = BufWriter::new(std::io::stdout().lock());
        return match write(&reader, &mut out) {
            // A reader that went away (`| head`) is no error of ours.
            Err(ExportError::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                Ok(Exit::Done)
            }
            written => written.map(|_| Exit::Done).map_err(unexportable),
        };
    };
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(|why| Problem::environment(format!("{}: {why}", path.display())))?;
    let written = write(&reader, &mut BufWriter::new(&file))
        .and_then(|head| file.sync_all().map(|()| head).map_err(ExportError::Io));
    match written {
        // Half of an export is good for nothing, and stands in the way of the next one.
        Err(ExportError::Io(_) | ExportError::Store(_)) => drop(std::fs::remove_file(path)),
        // All that can be trusted of a broken history.
        Ok(_) | Err(ExportError::Broken(_)) => {}
    }
    let head = written.map_err(unexportable)?;
    match args.json {
        true => print_json(&json!({ "records": head.seq, "head_hash": head.hash.to_string() }))?,
        false => say(format!("{} records, head {}", head.seq, head.hash)),
    }
    Ok(Exit::Done)
}

fn write(reader: &Reader, out: &mut impl Write) -> Result<kapelle_store::Head, ExportError> {
    let head = reader.export(out)?;
    out.flush()?;
    Ok(head)
}

fn unexportable(error: ExportError) -> Problem {
    match error {
        ExportError::Store(error) => error.into(),
        broken @ ExportError::Broken(_) => Problem::new(Exit::Failed, broken)
            .hint("the export ends before the first broken record"),
        io @ ExportError::Io(_) => Problem::environment(io),
    }
}

pub async fn import(args: ImportArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let _alone = lead(&project).await?;
    let to = project.location()?;
    let extent = if args.partial { Extent::AsFarAsItGoes } else { Extent::Whole };
    let carried = if args.file.as_os_str() == "-" {
        kapelle_store::import(&mut std::io::stdin().lock(), extent, &to)?
    } else {
        let file = std::fs::File::open(&args.file)
            .map_err(|why| Problem::usage(format!("{}: {why}", args.file.display())))?;
        kapelle_store::import(&mut BufReader::new(file), extent, &to)?
    };
    report(&carried, &to, args.json)?;
    Ok(Exit::Done)
}

async fn begun() -> Result<Project, Problem> {
    let project = Project::here().await?;
    match project.is_begun()? {
        true => Ok(project),
        false => Err(no_journal()),
    }
}

/// While the store is looked after, nobody runs the project.
async fn lead(project: &Project) -> Result<Leadership, Problem> {
    project.make_state_dir().await?;
    let store = project.location()?;
    Ok(Leadership::over(&project.state_dir(), &store, Holder::here())?)
}

/// The same for the place that a store moves to: another project may run there (WRK-15). A server is
/// asked by whoever connects to it.
fn lead_there(to: &Location, us: &Holder) -> Result<Option<Leadership>, Problem> {
    match Leadership::of_store(to, us.clone()) {
        Ok(there) => Ok(Some(there)),
        // It is where the store is already, which the move itself says better.
        Err(Error::Held { holder: Some(holder) }) if holder == *us => Ok(None),
        Err(held @ Error::Held { .. }) => {
            let problem = Problem::from(held);
            Err(Problem { what: format!("{to} is in use: {}", problem.what), ..problem })
        }
        Err(error) => Err(error.into()),
    }
}

fn report(carried: &Carried, to: &Location, as_json: bool) -> Result<(), Problem> {
    let Carried { head, blobs, tables, .. } = carried;
    if as_json {
        return print_json(&json!({
            "records": head.seq, "head_hash": head.hash.to_string(), "blobs": blobs,
            "tables": tables, "to": to.to_string() }));
    }
    print(format!("{} records, {blobs} blobs, head {} in {to}", head.seq, head.hash));
    Ok(())
}

/** What the page shows when there is nothing else to show. */

import { useEffect, useState } from "react";
import { timeOfDay } from "../format";
import type { Connection } from "../store";
import { Command } from "./Command";
import { Mark } from "./Header";

export function Empty() {
  return (
    <section className="empty" aria-labelledby="empty-heading">
      <Mark />
      <h2 id="empty-heading">No mission yet</h2>
      <p>Give the team a goal. It is planned, tested first, checked and merged, and you see all of it here.</p>
      <Command line={'kapelle run "say what should be different"'} />
    </section>
  );
}

export function Connecting() {
  return (
    <main className="stage">
      <Mark />
      <p role="status">Connecting …</p>
    </main>
  );
}

type Lost = Extract<Connection, { state: "reconnecting" }>;

export function Gone({ connection, retryNow }: { connection: Lost; retryNow: () => void }) {
  return (
    <main className="stage">
      <Mark />
      <h1 role="alert">Kapelle does not answer</h1>
      <p>
        Nothing listens at <code>{location.host}</code>, or it is not Kapelle. Start it, for example with a mission; this
        page connects by itself.
      </p>
      <Command line={'kapelle run "say what should be different"'} />
      <p className="note num">
        <Retry connection={connection} />
      </p>
      <button type="button" className="button" onClick={retryNow}>Try now</button>
    </main>
  );
}

/** Lies over the page instead of pushing it, and says how old the picture is. */
export function StaleBar({ connection, shownAt, retryNow }: { connection: Lost; shownAt: number; retryNow: () => void }) {
  return (
    <div className="stale">
      <p role="alert">
        <strong>The server does not answer.</strong> You see the state of {timeOfDay(shownAt)}.
      </p>
      <span className="note num">
        <Retry connection={connection} />
      </span>
      <button type="button" className="button" onClick={retryNow}>Try now</button>
    </div>
  );
}

function Retry({ connection }: { connection: Lost }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, []);
  if (connection.retryAt === null) return <>Trying …</>;
  return <>Next try in {Math.max(1, Math.ceil((connection.retryAt - now) / 1000))} s</>;
}

import { memo, type ReactNode } from "react";
import type { Agent, Cost, Mission } from "../api";
import { needsSummary, plural, type Need } from "../derive";
import { money } from "../format";
import type { Connection } from "../store";

type Props = {
  project: string;
  connection: Connection;
  missions: Mission[];
  agents: Agent[];
  cost: Cost;
  needs: Need[];
};

export const Header = memo(function Header({ project, connection, missions, agents, cost, needs }: Props) {
  const running = missions.reduce((sum, mission) => sum + mission.tasks_running, 0);
  const busy = agents.filter((agent) => agent.status === "busy").length;
  const first = needs[0];
  return (
    <header className="top">
      <div className="brand">
        <Mark />
        <div className="names">
          <h1 className="clip">{project}</h1>
          <p>
            Kapelle
            <ConnectionState connection={connection} />
          </p>
        </div>
      </div>
      <Figure label="Running" value={running === 0 ? "Nothing" : plural(running, "task")} quiet={running === 0}>
        {busy} of {plural(agents.length, "agent")} busy
      </Figure>
      <Figure
        label="Needs you"
        value={first === undefined ? "Nothing" : needsSummary(needs)}
        quiet={first === undefined}
        attention={first !== undefined}
      >
        {first === undefined ? "no question, no approval" : <a href="#needs">See what to do</a>}
      </Figure>
      <CostFigure cost={cost} />
    </header>
  );
});

type FigureProps = { label: string; value: ReactNode; quiet?: boolean; attention?: boolean; children: ReactNode };

function Figure({ label, value, quiet = false, attention = false, children }: FigureProps) {
  return (
    <section className="figure" data-quiet={quiet} data-attention={attention} aria-label={label}>
      <h2>{label}</h2>
      <p className="value num">{value}</p>
      <p className="note num">{children}</p>
    </section>
  );
}

function CostFigure({ cost }: { cost: Cost }) {
  const share = (usd: number) => (cost.cap_usd > 0 ? Math.min(100, (100 * usd) / cost.cap_usd) : 0);
  const spent = share(cost.spent_usd);
  const reserved = Math.min(share(cost.reserved_usd), 100 - spent);
  const text = `${money(cost.spent_usd)} spent and ${money(cost.reserved_usd)} reserved of ${money(cost.cap_usd)}`;
  return (
    <section className="figure cost" aria-label="Cost" data-spent={cost.spent_usd}>
      <h2>Cost</h2>
      <p className="value num">
        {money(cost.spent_usd)} <small>of {money(cost.cap_usd)}</small>
      </p>
      <div
        className="meter"
        role="meter"
        aria-label="Budget used"
        aria-valuemin={0}
        aria-valuemax={cost.cap_usd}
        aria-valuenow={Math.min(cost.spent_usd, cost.cap_usd)}
        aria-valuetext={text}
      >
        <span className="spent" style={{ width: `${spent}%` }} />
        <span className="reserved" style={{ width: `${reserved}%` }} />
      </div>
      <p className="note num">{money(cost.reserved_usd)} reserved</p>
    </section>
  );
}

const CONNECTION_WORDS: Record<Connection["state"], string> = {
  connecting: "Connecting",
  live: "Live",
  reconnecting: "Reconnecting",
};

function ConnectionState({ connection }: { connection: Connection }) {
  return (
    <span className="connection" role="status" data-connection={connection.state}>
      <span className="dot" aria-hidden="true" />
      {CONNECTION_WORDS[connection.state]}
    </span>
  );
}

export function Mark() {
  return (
    <svg className="mark" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path className="brass" d="M9 9v14" />
      <path d="M16 13v10M23 17v6" />
    </svg>
  );
}

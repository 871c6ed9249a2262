import { memo, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { Activity, Level } from "../api";
import { matches, plural } from "../derive";
import { timeOfDay } from "../format";
import { Icon } from "./Icon";

/** Closer to the end than this counts as reading the end. */
const BOTTOM_SLACK_PX = 24;

export const ActivityLog = memo(function ActivityLog({ lines }: { lines: Activity[] }) {
  const [filter, setFilter] = useState("");
  const input = useSlashFocus();
  const shown = useMemo(() => keyed(lines.filter((line) => matches(line, filter))), [lines, filter]);
  const scroller = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  /** The last line seen at the bottom; null while the bottom is in view. */
  const [readUpTo, setReadUpTo] = useState<number | null>(null);
  const unread = readUpTo === null ? 0 : shown.filter(({ line }) => line.seq > readUpTo).length;

  function toBottom() {
    const box = scroller.current;
    if (box === null) return;
    follows.current = true;
    setReadUpTo(null);
    box.scrollTop = box.scrollHeight;
  }

  function onScroll() {
    const box = scroller.current;
    if (box === null) return;
    const atBottom = box.scrollHeight - box.scrollTop - box.clientHeight < BOTTOM_SLACK_PX;
    if (atBottom === follows.current) return;
    follows.current = atBottom;
    setReadUpTo(atBottom ? null : (lines.at(-1)?.seq ?? 0));
  }

  useLayoutEffect(() => {
    const box = scroller.current;
    if (box !== null && follows.current) box.scrollTop = box.scrollHeight;
  }, [shown]);

  // The panel changes its height with the window; the reader of the end stays at the end.
  useEffect(() => {
    const box = scroller.current;
    if (box === null) return;
    const observer = new ResizeObserver(() => {
      if (follows.current) box.scrollTop = box.scrollHeight;
    });
    observer.observe(box);
    return () => observer.disconnect();
  }, []);

  return (
    <section className="panel log" aria-labelledby="log-heading">
      <div className="panel-head">
        <h2 id="log-heading">Activity</h2>
        <span className="note num" role="status">
          {filter === "" ? "" : `${shown.length} of ${plural(lines.length, "line")}`}
        </span>
        <span className="filter">
          <input
            ref={input}
            type="search"
            value={filter}
            placeholder="Filter"
            aria-label="Filter activity"
            aria-keyshortcuts="/"
            onChange={(event) => setFilter(event.target.value)}
            onKeyDown={(event) => {
              if (event.key !== "Escape") return;
              setFilter("");
              event.currentTarget.blur();
            }}
          />
          <kbd aria-hidden="true">/</kbd>
        </span>
      </div>
      <div className="log-frame">
        {/* Not announced line by line: agents talk faster than a screen reader. */}
        <div className="log-lines" ref={scroller} onScroll={onScroll} role="log" aria-live="off" aria-label="Activity" tabIndex={0}>
          {shown.length === 0 ? (
            <p className="hint">{filter === "" ? "Nothing has happened yet." : "No line matches the filter."}</p>
          ) : (
            <ol>
              {shown.map(({ key, line }) => (
                <Line key={key} line={line} />
              ))}
            </ol>
          )}
        </div>
        {unread > 0 && (
          <button type="button" className="unread num" onClick={toBottom}>
            {plural(unread, "new line")} ↓
          </button>
        )}
      </div>
    </section>
  );
});

const LEVEL_WORDS: Record<Level, string> = { info: "Info", warn: "Warning", error: "Error" };

const Line = memo(function Line({ line }: { line: Activity }) {
  const serious = line.level !== "info";
  return (
    <li className="log-line" data-level={line.level}>
      <time className="num">{timeOfDay(line.at)}</time>
      <span className="log-body">
        <b>{line.actor}</b>
        {line.task !== null && <span className="tag">{line.task}</span>}
        {serious && (
          <span className="level">
            <Icon name={line.level === "warn" ? "warn" : "cross"} />
            {LEVEL_WORDS[line.level] ?? line.level}
          </span>
        )}
        <span>{line.text}</span>
      </span>
    </li>
  );
});

/** One journal entry may speak in two lines; their keys still have to differ. */
function keyed(lines: Activity[]): { key: string; line: Activity }[] {
  let twins = 0;
  return lines.map((line, index) => {
    twins = lines[index - 1]?.seq === line.seq ? twins + 1 : 0;
    return { key: `${line.seq}.${twins}`, line };
  });
}

/** `/` goes to the filter from anywhere that does not take text itself. */
function useSlashFocus() {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    function onKey(event: KeyboardEvent) {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
      const target = event.target;
      if (target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]")) return;
      event.preventDefault();
      input.current?.focus();
    }
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return input;
}

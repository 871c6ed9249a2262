import { useEffect, useRef, useState } from "react";

type Outcome = "idle" | "copied" | "selected";

const LABELS: Record<Outcome, string> = { idle: "Copy", copied: "Copied", selected: "Press Ctrl+C" };
const FEEDBACK_MS = 2_000;

/** A command line to type, with a button that copies it. */
export function Command({ line }: { line: string }) {
  const code = useRef<HTMLElement>(null);
  const [outcome, setOutcome] = useState<Outcome>("idle");

  useEffect(() => {
    if (outcome === "idle") return;
    const timer = setTimeout(() => setOutcome("idle"), FEEDBACK_MS);
    return () => clearTimeout(timer);
  }, [outcome]);

  async function copy() {
    try {
      await navigator.clipboard.writeText(line);
      setOutcome("copied");
    } catch {
      // Browsers keep the clipboard closed on plain http from another machine.
      if (code.current !== null) getSelection()?.selectAllChildren(code.current);
      setOutcome("selected");
    }
  }

  return (
    <span className="command">
      <span className="prompt" aria-hidden="true">$</span>
      <code ref={code}>{line}</code>
      <button type="button" onClick={copy} aria-label={outcome === "idle" ? `Copy: ${line}` : LABELS[outcome]}>
        {LABELS[outcome]}
      </button>
    </span>
  );
}

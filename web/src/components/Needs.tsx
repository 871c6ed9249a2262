import { memo } from "react";
import type { Need } from "../derive";
import { Command } from "./Command";
import { Icon } from "./Icon";

const KIND_WORDS: Record<Need["kind"], string> = {
  question: "Question",
  approval: "Approval",
  action: "Action",
};

/** The live region stays in the page while empty: screen readers announce only what appears inside one. */
export const Needs = memo(function Needs({ needs }: { needs: Need[] }) {
  return (
    <section id="needs" className="needs" aria-label="Needs you" aria-live="polite" tabIndex={-1}>
      {needs.map((need) => (
        <article key={need.key} className="need" data-kind={need.kind}>
          <div className="fold">
            <h2>
              <Icon name={need.kind === "question" ? "question" : "stamp"} />
              <strong>{KIND_WORDS[need.kind]}</strong>
              <span className="clip">{need.heading}</span>
            </h2>
            <div className="ask">
              <p>{need.text}</p>
              {need.options.length > 0 && (
                <ol>
                  {need.options.map((option, index) => (
                    <li key={`${index} ${option}`}>{option}</li>
                  ))}
                </ol>
              )}
            </div>
            <Command line={need.command} />
          </div>
        </article>
      ))}
    </section>
  );
});

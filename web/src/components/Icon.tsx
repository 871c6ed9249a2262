import type { ReactNode } from "react";
import type { Face, IconName } from "../derive";

const SHAPES: Record<IconName, ReactNode> = {
  circle: <circle cx="8" cy="8" r="5.5" strokeDasharray="2.4 2.2" />,
  play: <><circle cx="8" cy="8" r="6" opacity=".35" /><path className="spin" d="M8 2a6 6 0 0 1 6 6" /><circle cx="8" cy="8" r="2" fill="currentColor" stroke="none" /></>,
  flask: <path d="M6 2h4M7 2v4.5L3.4 12.6A1 1 0 0 0 4.3 14h7.4a1 1 0 0 0 .9-1.4L9 6.5V2M5 10.5h6" />,
  eye: <><path d="M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8Z" /><circle cx="8" cy="8" r="1.8" /></>,
  check: <><circle cx="8" cy="8" r="6.5" fill="currentColor" stroke="none" /><path className="cut" d="m5.2 8.2 2 2 3.6-4.2" /></>,
  minus: <><circle cx="8" cy="8" r="6" /><path d="M5.2 8h5.6" /></>,
  cross: <><circle cx="8" cy="8" r="6" /><path d="m5.8 5.8 4.4 4.4m0-4.4-4.4 4.4" /></>,
  retry: <path d="M13.5 8a5.5 5.5 0 1 1-1.7-4M13.5 1.8V4.5h-2.7" />,
  clock: <><circle cx="8" cy="8" r="6" /><path d="M8 4.6V8l2.3 1.5" /></>,
  pause: <><circle cx="8" cy="8" r="6" /><path d="M6.5 6v4M9.5 6v4" /></>,
  slash: <><circle cx="8" cy="8" r="6" /><path d="m4 12 8-8" /></>,
  undo: <path d="M5.5 3 2.5 6l3 3M2.8 6H9a4 4 0 0 1 0 8H6" />,
  box: <path d="M2.5 3h11v3h-11zM3.5 6v7h9V6M6.5 8.5l3 3m0-3-3 3" />,
  question: <><circle cx="8" cy="8" r="6.2" /><path d="M6.2 6.4c0-2.3 3.7-2.2 3.7 0 0 1.4-1.9 1.4-1.9 2.7M8 11.2v.1" /></>,
  stamp: <path d="M6 8.5 6.6 6a2 2 0 1 1 2.8 0l.6 2.5h2.5v3h-9v-3zM3.5 13.7h9" />,
  send: <path d="M8 13.5v-9M4.5 7.5 8 4l3.5 3.5M3 1.8h10" />,
  info: <path d="M8 7.4v3.8M8 4.9v.1" />,
  warn: <path d="M8 2.2 14.4 13.3H1.6zM8 6.5v3.2M8 11.5v.1" />,
};

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" aria-hidden="true">
      {SHAPES[name]}
    </svg>
  );
}

export function State({ face }: { face: Face }) {
  return (
    <span className="state" data-tone={face.tone}>
      <Icon name={face.icon} />
      <span>{face.word}</span>
    </span>
  );
}

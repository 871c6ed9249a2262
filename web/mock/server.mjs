// Plays a mission to the dashboard without Kapelle, for development and for the browser test.
//   npm run mock -- [--port 4747] [--pace 600] [--empty] [--tasks 500]
// Serves web/dist too, under the content security policy that the real server sends.

import { createReadStream, existsSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { emptyProject, largeProject, missionSteps } from "./mission.mjs";

const { values: options } = parseArgs({
  options: {
    port: { type: "string", default: "4747" },
    pace: { type: "string", default: "600" },
    tasks: { type: "string" },
    empty: { type: "boolean", default: false },
  },
});

const DIST = fileURLToPath(new URL("../dist", import.meta.url));
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const HEADERS = {
  "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
  "x-content-type-options": "nosniff",
  "cache-control": "no-store",
};

const project = options.tasks ? largeProject(Date.now(), Number(options.tasks)) : emptyProject(Date.now());
const streams = new Set();

const overview = () => ({ ...project, now: Date.now(), activity: project.activity.slice(-200) });
const frame = (event, data) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;

/** Runs a step and sends what it changed. */
function play(step) {
  const copy = (items) => new Map(items.map((item) => [item.id, JSON.stringify(item)]));
  const before = [copy(project.missions), copy(project.tasks), copy(project.agents)];
  const lines = project.activity.length;
  project.now = Date.now();
  project.seq += 1;
  step(project);
  const changed = (items, old) => items.filter((item) => old.get(item.id) !== JSON.stringify(item));
  const update = {
    seq: project.seq,
    now: project.now,
    missions: changed(project.missions, before[0]),
    tasks: changed(project.tasks, before[1]),
    agents: changed(project.agents, before[2]),
    activity: project.activity.slice(lines),
    cost: project.cost,
  };
  for (const stream of streams) stream.write(frame("update", update));
}

function serveFile(path, response) {
  const wanted = normalize(join(DIST, path === "/" ? "index.html" : path));
  if (!wanted.startsWith(DIST) || !existsSync(wanted)) {
    response.writeHead(404, HEADERS).end("not found; run `npm run build` first\n");
    return;
  }
  response.writeHead(200, { ...HEADERS, "content-type": TYPES[extname(wanted)] ?? "application/octet-stream" });
  createReadStream(wanted).pipe(response);
}

const server = createServer((request, response) => {
  const path = new URL(request.url, "http://mock").pathname;
  if (path === "/api/v1/overview") {
    response.writeHead(200, { ...HEADERS, "content-type": "application/json" }).end(JSON.stringify(overview()));
  } else if (path === "/api/v1/stream") {
    response.writeHead(200, { ...HEADERS, "content-type": "text/event-stream" });
    response.write(frame("snapshot", overview()));
    streams.add(response);
    request.on("close", () => streams.delete(response));
  } else {
    serveFile(path, response);
  }
});

server.listen(Number(options.port), "127.0.0.1", () => {
  process.stderr.write(`dashboard: http://127.0.0.1:${server.address().port}/\n`);
});

const steps = options.empty ? [] : options.tasks ? endless() : missionSteps()[Symbol.iterator]();
function* endless() {
  for (let beat = 0; ; beat++) {
    yield (large) => {
      const task = large.tasks[(beat * 37) % large.tasks.length];
      task.status = task.status === "in_progress" ? "testing" : "in_progress";
      large.cost.spent_usd += 0.01;
      large.activity.push({ seq: ++large.seq, at: large.now, actor: "developer-1", text: `worked on task ${task.name}`, level: "info", mission: "m1", task: task.name });
    };
  }
}
if (!options.empty) {
  const timer = setInterval(() => {
    const { value: step, done } = steps.next();
    if (done) clearInterval(timer);
    else play(step);
  }, Number(options.pace));
}

process.on("SIGINT", () => {
  process.stdout.write(`${JSON.stringify({ mission: project.missions[0] ?? null })}\n`);
  process.exit(0);
});

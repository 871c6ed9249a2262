// Watches a whole demo mission through the dashboard, as a person would.
//   KAPELLE_BIN=target/debug/kapelle npm run e2e      (or the path as an argument)
//   npm run e2e -- --mock                             (against web/mock, after `npm run build`)
// Screenshots go to $KAPELLE_SHOTS, or e2e/shots.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values: options, positionals } = parseArgs({ options: { mock: { type: "boolean", default: false } }, allowPositionals: true });
const shots = process.env.KAPELLE_SHOTS ?? fileURLToPath(new URL("shots", import.meta.url));

const START_MS = 60_000;
const MISSION_MS = 240_000;
const EXIT_MS = 30_000;

const temp = await mkdtemp(join(tmpdir(), "kapelle-e2e-"));
let demo;
let context;
let page;
let failed = true;

try {
  await mkdir(shots, { recursive: true });
  demo = startDemo();
  const address = await withTimeout(demo.address, START_MS, "the demo did not print its dashboard's address");

  context = await chromium.launchPersistentContext(join(temp, "browser"), {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: [
      "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
      ...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
    ],
    viewport: { width: 1440, height: 900 },
    deviceScaleFactor: 2,
    colorScheme: "light",
  });
  await context.addInitScript(rememberWhatWasSeen);
  page = context.pages()[0] ?? (await context.newPage());
  page.setDefaultTimeout(MISSION_MS);

  const complaints = [];
  const foreign = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") complaints.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`page: ${error.message}`));
  page.on("requestfailed", (request) => complaints.push(`request: ${request.url()} ${request.failure()?.errorText}`));
  page.on("response", (response) => {
    if (response.status() >= 400) complaints.push(`response: ${response.status()} ${response.url()}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(address)) foreign.push(request.url());
  });
  let loads = 0;
  page.on("load", () => (loads += 1));

  await page.goto(address);
  await page.locator('.connection[data-connection="live"]').waitFor();
  assert.notEqual(await missionStatus(page), "delivered", "the page was opened after the mission was over");
  step("page is live before the mission is over");

  await page.waitForFunction(() => window.seen.task.has("in_progress"));
  step("saw a task in progress");
  await page.waitForFunction(() => window.seen.agent.has("busy"));
  step("saw an agent busy");

  // The picture should show some work done and some going on; a fast demo may never look like that.
  await page.waitForFunction(() => {
    const tasks = [...document.querySelectorAll("[data-task]")].map((task) => task.dataset.status);
    const done = tasks.filter((status) => status === "completed").length;
    const running = tasks.filter((status) => ["in_progress", "testing", "ready_for_review"].includes(status)).length;
    return (done >= 1 && running >= 2) || done >= 3 || (done > 0 && done === tasks.length);
  });
  await shoot(page, "running");

  if (options.mock) {
    await page.locator('.need[data-kind="question"]').waitFor();
    await shoot(page, "question");
    await page.locator('.need[data-kind="approval"]').waitFor();
    await shoot(page, "approval");
    step("saw the question and the approval");
  }

  await page.locator('.mission[data-status="delivered"]').first().waitFor();
  await page.waitForFunction(() => {
    const tasks = [...document.querySelectorAll("[data-task]")];
    return tasks.length > 0 && tasks.every((task) => task.dataset.status === "completed");
  });
  await page.waitForFunction(() => Number(document.querySelector("[data-spent]")?.dataset.spent) > 0);
  assert.equal(loads, 1, "the page was loaded again while it was watched");
  step(`mission delivered, all tasks completed, cost ${await page.locator(".cost .value").innerText()}`);
  await shoot(page, "delivered");

  await testKeyboard(page);
  step("keyboard works");

  assert.deepEqual(complaints, [], "the browser complained");
  assert.deepEqual(foreign, [], "the page asked another host");

  // From here on the server goes away, and the browser rightly complains about that.
  demo.child.kill("SIGINT");
  const [code, signal] = await withTimeout(demo.exit, EXIT_MS, "the demo did not end after SIGINT");
  assert.equal(signal, null, `the demo was ended by ${signal} instead of ending itself`);
  const report = JSON.parse(demo.stdout());
  assert.equal(report.mission?.status, "delivered", `the report does not say delivered: ${demo.stdout()}`);
  step(`demo ended with code ${code} and one JSON report`);

  await page.locator(".stale").waitFor();
  assert.match(await page.locator(".connection").innerText(), /Reconnecting/);
  await shoot(page, "gone");
  step("the page says that the server is gone and keeps the last state");
  failed = false;
} catch (error) {
  console.error(`FAILED: ${error.stack ?? error}`);
  if (page !== undefined) {
    await page.screenshot({ path: join(shots, "failed.png") }).catch(() => {});
    console.error(`--- text of the page\n${await page.locator("body").innerText({ timeout: 2_000 }).catch((reason) => `(none: ${reason.message})`)}`);
  }
  if (demo !== undefined) console.error(`--- stderr of the demo\n${demo.stderr()}\n--- stdout of the demo\n${demo.stdout()}`);
} finally {
  await context?.close().catch(() => {});
  await endDemo();
  await rm(temp, { recursive: true, force: true });
}
console.log(failed ? "e2e: failed" : `e2e: passed; screenshots in ${shots}`);
process.exitCode = failed ? 1 : 0;

function step(text) {
  console.log(`ok: ${text}`);
}

function startDemo() {
  const bin = positionals[0] ?? process.env.KAPELLE_BIN;
  const [command, args] = options.mock
    ? [process.execPath, [fileURLToPath(new URL("../mock/server.mjs", import.meta.url)), "--port", "0", "--pace", process.env.MOCK_PACE ?? "250"]]
    : [bin, ["demo", "--dir", join(temp, "demo"), "--yes", "--json", "--keep-open", "--pace", "150"]];
  assert.ok(command, "set KAPELLE_BIN to the kapelle binary, or use --mock");

  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text) => (stdout += text));
  child.stderr.setEncoding("utf8");
  const address = new Promise((resolve, reject) => {
    child.stderr.on("data", (text) => {
      stderr += text;
      const found = /^dashboard: (http:\/\/\S+)$/m.exec(stderr);
      if (found) resolve(found[1]);
    });
    child.on("error", reject);
    child.on("exit", (code, signal) => reject(new Error(`the demo ended early (code ${code}, signal ${signal})`)));
  });
  // "close" comes when the output has been read to its end.
  const exit = once(child, "close");
  for (const promise of [address, exit]) promise.catch(() => {});
  return { child, address, exit, stdout: () => stdout, stderr: () => stderr };
}

async function endDemo() {
  if (demo === undefined || demo.child.exitCode !== null || demo.child.signalCode !== null) return;
  demo.child.kill("SIGINT");
  await withTimeout(demo.exit, EXIT_MS, "").catch(() => demo.child.kill("SIGKILL"));
}

async function withTimeout(promise, ms, message) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${message} within ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Runs in the page. States may be shorter than the test looks; what was drawn once was seen. */
function rememberWhatWasSeen() {
  window.seen = { task: new Set(), agent: new Set() };
  new MutationObserver(() => {
    for (const task of document.querySelectorAll("[data-task]")) window.seen.task.add(task.dataset.status);
    for (const agent of document.querySelectorAll("[data-agent]")) window.seen.agent.add(agent.dataset.status);
  }).observe(document, { subtree: true, childList: true, attributes: true });
}

async function missionStatus(page) {
  const mission = page.locator(".mission").first();
  return (await mission.count()) === 0 ? null : mission.getAttribute("data-status");
}

async function shoot(page, name) {
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: join(shots, `${name}-${colorScheme}.png`), animations: "disabled" });
  }
}

async function testKeyboard(page) {
  const filter = page.getByRole("searchbox", { name: "Filter activity" });
  const lines = page.locator(".log-line");
  await page.evaluate(() => document.activeElement?.blur());
  await page.keyboard.press("/");
  assert.ok(await filter.evaluate((input) => input === document.activeElement), "/ did not focus the filter");
  assert.equal(await filter.inputValue(), "", "/ was typed into the filter");

  const before = await lines.count();
  // The name of the last task that the log speaks of: it occurs, and not in every line.
  const word = await page.locator(".log-line .tag").last().innerText();
  await page.keyboard.type(word);
  await page.waitForFunction((count) => document.querySelectorAll(".log-line").length < count, before);
  assert.ok((await lines.count()) > 0, `the filter "${word}" left no line`);
  for (const text of await lines.allInnerTexts()) assert.ok(text.includes(word), `"${text}" does not contain "${word}"`);

  await page.keyboard.press("Escape");
  await page.waitForFunction((count) => document.querySelectorAll(".log-line").length >= count, before);
  assert.ok(await filter.evaluate((input) => input !== document.activeElement), "Escape did not leave the filter");

  const stops = [];
  for (let press = 0; press < 6; press += 1) {
    await page.keyboard.press("Tab");
    stops.push(await page.evaluate(() => document.activeElement?.matches(":focus-visible") ?? false));
  }
  assert.ok(stops.some(Boolean), "Tab reached nothing with a visible focus");
  await page.evaluate(() => document.activeElement?.blur());
}

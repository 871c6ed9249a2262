// Life cycles a second by graphile-worker: added one by one, run by as many workers, and done.
// Arguments: how many, by how many clients, the address of a PostgreSQL database. Prints one number.
import { run } from "graphile-worker";
import pg from "pg";

const [cycles, clients] = process.argv.slice(2, 4).map(Number);
const pgPool = new pg.Pool({ connectionString: process.argv[4], max: clients + 4 });
let left = cycles;
let finish;
const finished = new Promise((resolve) => (finish = resolve));
const quiet = { logger: undefined, noHandleSignals: true };
const runner = await run({
  ...quiet,
  pgPool,
  concurrency: clients,
  pollInterval: 100,
  taskList: {
    work: async () => {
      left -= 1;
      if (left === 0) finish();
    },
  },
});
const started = performance.now();
const share = (client) => Math.floor(cycles / clients) + (client < cycles % clients ? 1 : 0);
await Promise.all(
  Array.from({ length: clients }, async (_, client) => {
    for (let n = 0; n < share(client); n += 1) await runner.addJob("work", { client });
  }),
);
await finished;
const rate = Math.round(cycles / ((performance.now() - started) / 1000));
await runner.stop();
await pgPool.end();
// Last, because the runner reports its own end on the same stream.
console.log(rate);
process.exit(0);

// SPDX-License-Identifier: Apache-2.0
// noop.mjs URL CONCURRENCY JOBS: Node's worker doing what noop.c does. CPU and wall seconds from the first job to the
// last answer.
import { Worker } from 'bullmq';
import { connect } from './connect.mjs';

const [, , url, concurrency, jobs] = process.argv;
const cpu = () => { const u = process.cpuUsage(); return (u.user + u.system) / 1e6; };
const connection = connect(url);
let left = Number(jobs), start, from, finished;
const all = new Promise((done) => { finished = done; });
const worker = new Worker('sandbox', async () => {
  if (start === undefined) { start = cpu(); from = performance.now(); }
  return 'done';
}, { connection, prefix: 'bench', concurrency: Number(concurrency), maxStalledCount: 0 });
worker.on('completed', () => { if (--left === 0) finished(); });
worker.on('error', (error) => { console.error(error); process.exit(1); });
await all;
console.log(`cpu_s ${(cpu() - start).toFixed(6)}\nwall_s ${((performance.now() - from) / 1e3).toFixed(6)}`);
await worker.close();
await connection.quit();

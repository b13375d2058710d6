// SPDX-License-Identifier: Apache-2.0
// noop.mjs URL CONCURRENCY JOBS WARM: Node's worker doing what noop.c does, and saying the same.
import { Worker } from 'bullmq';
import { connect } from './connect.mjs';

const [, , url, concurrency, jobs, warm] = process.argv;
const cpu = () => { const u = process.cpuUsage(); return (u.user + u.system) / 1e6; };
const connection = connect(url);
let left = Number(jobs) && Number(jobs) + Number(warm), seen = 0, counted = 0, start, from, to, finished;
const waits = [];
const all = new Promise((done) => { finished = done; });
const worker = new Worker('sandbox', async (job) => {
  if (seen++ === Number(warm)) { start = cpu(); from = performance.now(); }
  if (start !== undefined) waits.push(job.processedOn - job.timestamp);
  return 'done';
}, { connection, prefix: 'bench', concurrency: Number(concurrency), maxStalledCount: 0 });
worker.on('completed', () => {
  counted++;
  to = performance.now();
  if (--left === 0) finished();
});
worker.on('error', (error) => { console.error(error); process.exit(1); });
if (left === 0) {
  await worker.waitUntilReady();
  console.log('ready');
  process.stdin.on('end', finished).resume();
}
await all;
waits.sort((a, b) => a - b);
console.log(`cpu_s ${(start === undefined ? 0 : cpu() - start).toFixed(6)}\nwall_s ${(((to ?? from ?? 0) - (from ?? 0)) / 1e3).toFixed(6)}`);
console.log(`jobs ${counted - Number(warm)}\nwait_p99_ms ${waits[Math.floor((waits.length - 1) * 0.99)] ?? 0}`);
await worker.close();
await connection.quit();
process.exit(0);

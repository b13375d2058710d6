// SPDX-License-Identifier: Apache-2.0
// noop.mjs URL CONCURRENCY JOBS WARM ROUNDS: Node's worker doing what noop.c does, counted at the same places, and saying the same.
import { Worker } from 'bullmq';
import { connect } from './connect.mjs';

const [, , url, concurrency, ...counts] = process.argv;
const [jobs, warm, rounds] = counts.map(Number);
const cpu = () => { const u = process.cpuUsage(); return (u.user + u.system) / 1e6; };
const connection = connect(url);
let seen = 0, done = 0, counting = false, start = 0, from = 0, last = 0, cpuS = 0, wallMs = 0, finished;
const waits = [];
const all = new Promise((resolve) => { finished = resolve; });
const beginCount = () => { counting = true; from = last = performance.now(); start = cpu(); };
const endCount = () => {
  if (!counting) return;
  counting = false;
  cpuS += cpu() - start;
  wallMs += last - from;
};
const worker = new Worker('sandbox', async (job) => {
  if (jobs === 0 && seen++ === 0) beginCount();
  if (counting) waits.push(job.processedOn - job.timestamp);
  return 'done';
}, { connection, prefix: 'bench', concurrency: Number(concurrency), maxStalledCount: 0 });
worker.on('completed', () => {
  done++;
  last = performance.now();
  if (jobs === 0) return;
  const n = done % (warm + jobs);
  if (n === 0) endCount();
  else if (n === warm) beginCount();
  if (done === rounds * (warm + jobs)) finished();
});
worker.on('error', (error) => { console.error(error); process.exit(1); });
if (jobs === 0) {
  await worker.waitUntilReady();
  console.log('ready');
  process.stdin.on('end', finished).resume();
}
await all;
endCount();
waits.sort((a, b) => a - b);
console.log(`cpu_s ${cpuS.toFixed(6)}\nwall_s ${(wallMs / 1e3).toFixed(6)}\njobs ${done - rounds * warm}`);
console.log(`wait_p99_ms ${waits[Math.floor((waits.length - 1) * 0.99)] ?? 0}`);
await worker.close();
await connection.quit();
process.exit(0);

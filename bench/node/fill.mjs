// SPDX-License-Identifier: Apache-2.0
// fill.mjs URL JOBS [MS]: adds JOBS empty jobs to the queue `sandbox` of prefix `bench`, the options those of a real one;
// with MS one by one, that long apart, else so that workers find all of them at once.
import { Queue } from 'bullmq';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from './connect.mjs';

const [, , url, jobs, ms] = process.argv;
const redis = connect(url);
const queue = new Queue('sandbox', { connection: redis, prefix: 'bench' });
const opts = () => ({ jobId: randomUUID(), attempts: 1, removeOnComplete: { age: 3600, count: 1000 }, removeOnFail: { age: 86400, count: 1000 } });
const batch = ms === undefined ? 500 : 1;
if (ms === undefined) await queue.pause();
for (let left = Number(jobs); left > 0; left -= batch) {
  await queue.addBulk(Array.from({ length: Math.min(batch, left) }, () => ({ name: 'check', data: { v: 1 }, opts: opts() })));
  if (ms !== undefined) await sleep(Number(ms));
}
if (ms === undefined) await queue.resume();
await queue.close();
await redis.quit();

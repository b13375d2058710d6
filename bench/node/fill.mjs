// SPDX-License-Identifier: Apache-2.0
// fill.mjs URL JOBS MS ROUNDS: adds JOBS empty jobs to the queue `sandbox` of prefix `bench`, the options those of a real one;
// with MS above 0 one by one, that long apart, else so that workers find all of them at once. With ROUNDS above 1 it
// does so again whenever they have gone.
import { Queue } from 'bullmq';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from './connect.mjs';

const [, , url, ...counts] = process.argv;
const [jobs, ms, rounds] = counts.map(Number);
const redis = connect(url);
const queue = new Queue('sandbox', { connection: redis, prefix: 'bench' });
const opts = () => ({ jobId: randomUUID(), attempts: 1, removeOnComplete: { age: 3600, count: 1000 }, removeOnFail: { age: 86400, count: 1000 } });
const batch = ms === 0 ? 500 : 1;
const gone = async () => Object.values(await queue.getJobCounts('wait', 'paused', 'active')).every((n) => n === 0);
for (let round = 0; round < rounds; round++) {
  while (round > 0 && !(await gone())) await sleep(5);
  if (ms === 0) await queue.pause();
  for (let left = jobs; left > 0; left -= batch) {
    await queue.addBulk(Array.from({ length: Math.min(batch, left) }, () => ({ name: 'check', data: { v: 1 }, opts: opts() })));
    if (ms > 0) await sleep(ms);
  }
  if (ms === 0) await queue.resume();
}
await queue.close();
await redis.quit();

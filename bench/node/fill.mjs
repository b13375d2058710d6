// SPDX-License-Identifier: Apache-2.0
// fill.mjs URL JOBS: adds JOBS empty jobs to the queue `sandbox` of prefix `bench`, the options those of a real one.
import { Queue } from 'bullmq';
import { randomUUID } from 'node:crypto';
import { connect } from './connect.mjs';

const redis = connect(process.argv[2]);
const queue = new Queue('sandbox', { connection: redis, prefix: 'bench' });
const opts = () => ({ jobId: randomUUID(), attempts: 1, removeOnComplete: { age: 3600, count: 1000 }, removeOnFail: { age: 86400, count: 1000 } });
for (let left = Number(process.argv[3]); left > 0; left -= 500)
  await queue.addBulk(Array.from({ length: Math.min(500, left) }, () => ({ name: 'check', data: { v: 1 }, opts: opts() })));
await queue.close();
await redis.quit();

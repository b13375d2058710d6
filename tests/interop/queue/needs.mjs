// SPDX-License-Identifier: Apache-2.0
// needs.mjs MAJOR COMMAND...: what a service with the public bullmq does on the worker's side, once with all its rights and once without
// each command. Prints a line a command: COMMAND, TAB, what failed, or nothing.
import { Redis } from 'ioredis';
import { assert, bullmq, connection, main, P, prefix, queueName, redis, setting, sleep } from './peer.mjs';

const operatorConnection = () => connection({ username: 'admin', password: setting('QV_PASSWORD') });
const operator = new Redis(operatorConnection());
const TTL_MS = 600000, HANG_MS = 5000;

// `client setinfo` is what ioredis tries, and does without.
const denied = (log) => log.some((entry) => entry[entry.indexOf('object') + 1] !== 'client|setinfo');

// A refusal is seen at once: the server has it in its log. What is left hanging then is closed by force.
async function refusedOr(promise) {
  let over = false;
  promise.then(() => {}, () => {}).finally(() => { over = true; });
  while (!over) {
    if (denied(await operator.call('ACL', 'LOG'))) {
      await Promise.race([promise.catch(() => {}), sleep(HANG_MS)]);
      return over ? promise : Promise.reject(new Error('it hangs'));
    }
    await sleep(20);
  }
  return promise;
}

async function service() {
  const errors = [], options = { connection: connection({ retryStrategy: null }), prefix };
  const queue = new bullmq.Queue(queueName, options), events = new bullmq.QueueEvents(queueName, options), keys = redis();
  for (const side of [queue, events, keys]) side.on('error', (error) => errors.push(error));
  const failIfTroubled = () => { if (errors.length) throw errors[0]; };
  try {
    return await refusedOr((async () => {
      await queue.waitUntilReady();
      await events.waitUntilReady();
      failIfTroubled();
      const counts = await queue.getJobCounts('wait', 'prioritized', 'delayed');
      assert.equal(counts.wait, 0);
      const job = await queue.add('check', {}, { jobId: 'runs', attempts: 1 });
      await queue.add('check', {}, { jobId: 'late', delay: 3600000 });
      const seen = await queue.getJob('late');
      assert.equal(await seen.getState(), 'delayed');
      await seen.remove();
      const waits = await queue.add('check', {}, { jobId: 'waits', attempts: 1 });
      assert.equal(await waits.getState(), 'waiting');
      await waits.remove();
      const worker = new bullmq.Worker(queueName, async () => 'done', { connection: operatorConnection(), prefix });
      try {
        assert.equal(await job.waitUntilFinished(events, TTL_MS), 'done');
      } finally {
        await worker.close(true);
      }
      assert.equal(await job.getState(), 'completed');
      await job.remove();
      failIfTroubled();
    })());
  } finally {
    for (const side of [queue, events]) await Promise.race([side.disconnect().catch(() => {}), sleep(1000)]);
    keys.disconnect();
  }
}

await main(async () => {
  process.on('unhandledRejection', () => {}); // of what hung when it was closed
  for (const command of ['', ...process.argv.slice(3)]) {
    await operator.flushall();
    await operator.call('ACL', 'LOG', 'RESET');
    if (command) await operator.call('ACL', 'SETUSER', 'worker', `-${command}`);
    let trouble = '';
    try {
      await service();
    } catch (error) {
      trouble = String(error.message).split('\n')[0] || 'failed';
    }
    if (command) await operator.call('ACL', 'SETUSER', 'worker', `+${command}`);
    else assert.equal(trouble, '', trouble);
    if (command) console.log(`${command}\t${trouble}`);
  }
});

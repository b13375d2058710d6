// SPDX-License-Identifier: Apache-2.0
// producer.mjs MAJOR: jobs made by Node with the public bullmq and node:crypto, run by the real runner, results verified by Node.
import { randomUUID } from 'node:crypto';
import * as c from './contract.mjs';
import { assert, bullmq, connection, main, prefix, queueName, redis, setting, until } from './peer.mjs';

const key = c.readKey(setting('QV_KEY_FILE'));
const image = { name: setting('QV_IMAGE'), digest: setting('QV_DIGEST') };
const WAIT_MS = 600000;

const step = (name, script, more = {}) => ({ name, argv: ['/bin/sh', '-c', script], ...more });

function makeJob(files, more = {}) {
  const jobId = randomUUID(), now = Date.now(), tenantId = 'node-tenant';
  const base = c.snapshot(key, tenantId, `${jobId}.base`, files);
  const job = {
    v: 1, jobId, tenantId, pool: 'default', kind: 'check', backends: ['docker-runsc', 'runsc'], image, base: base.descriptor,
    overlay: null, deletes: [], setup: null, egress: [], run: [step('first', 'true')], artefacts: [],
    limits: { wallMs: 300000, memoryMiB: 256, milliCpus: 1000, pids: 64, workMiB: 64 },
    issuedAt: now, notAfter: now + 600000, ...more,
  };
  return { job, blobs: [base] };
}

await main(async () => {
  const queue = new bullmq.Queue(queueName, { connection: connection(), prefix });
  const events = new bullmq.QueueEvents(queueName, { connection: connection(), prefix });
  const keys = redis();
  await events.waitUntilReady();

  const add = async ({ job, blobs }, envelope = c.sign(key, 'job', job)) => {
    const counts = await queue.getJobCounts('wait', 'prioritized', 'delayed');
    assert.ok(counts.wait + counts.prioritized + counts.delayed < 64, 'queue_full');
    for (const blob of blobs) await c.putBlob(keys, prefix, blob, job.notAfter - Date.now() + 120000);
    return queue.add(job.kind, envelope, c.jobOptions(job.jobId));
  };
  const run = async (made, envelope) => {
    const added = await add(made, envelope);
    return c.verifyResult(key, made.job, await added.waitUntilFinished(events, WAIT_MS));
  };
  const refused = async (made, reason, envelope) => {
    const added = await add(made, envelope);
    await assert.rejects(added.waitUntilFinished(events, WAIT_MS), { message: reason });
    for (const blob of made.blobs) await c.unlinkBlob(keys, prefix, blob.descriptor); // a refusal leaves them to their TTL
  };
  const chunksLeft = async ({ job }) => keys.exists(c.chunkKey(prefix, `${job.jobId}.base`, 0), c.chunkKey(prefix, `${job.jobId}.overlay`, 0));

  const progress = [];
  events.on('progress', ({ jobId, data }) => progress.push({ jobId, data }));

  // A whole job: base of more than one chunk, overlay, deletes, environment outside ASCII, two steps, artefacts.
  const long = 'long/'.padEnd(160, 'n') + '.txt';
  const noise = Buffer.from(Array.from({ length: 1700000 }, (_, i) => (Math.imul(i + 1, 2654435761) >>> 13) & 255));
  const whole = makeJob({ 'hello.txt': 'hello\n', 'gone/a': 'x', [long]: 'deep\n', 'noise.bin': noise,
    'tool.sh': { text: '#!/bin/sh\necho tool "$W"\n', executable: true } });
  const overlay = c.snapshot(key, whole.job.tenantId, `${whole.job.jobId}.overlay`, { 'hello.txt': 'changed\n', 'sub/added.txt': 'added\n' });
  whole.blobs.push(overlay);
  Object.assign(whole.job, {
    overlay: overlay.descriptor, deletes: ['gone'],
    run: [
      step('zeigen \u00e4'.replace(/[^a-z]/g, '-'), `cat hello.txt sub/added.txt ${long}; ./tool.sh; test ! -e gone`, { env: { W: '\u00fc \u{1f600} \ufb33' } }),
      step('fails', 'sha256sum noise.bin; mkdir -p out; echo made > out/a.txt; exit 3', { continueOnFailure: true, timeoutMs: 60000 }),
    ],
    artefacts: ['out/**'],
  });
  const result = await run(whole);
  assert.equal(result.status, 'succeeded');
  assert.equal(result.code, null);
  assert.deepEqual(result.steps.map((s) => s.exitCode), [0, 3]);
  assert.deepEqual(result.artefacts.map((a) => a.path), ['out/a.txt']);
  const files = await c.fetchPayload(keys, prefix, key, whole.job, result);
  assert.equal(files.get('logs/0.log').toString(), 'changed\nadded\ndeep\ntool \u00fc \u{1f600} \ufb33\n');
  assert.equal(files.get('logs/1.log').toString(), `${c.sha256(noise)}  noise.bin\n`);
  assert.equal(files.get('artefacts/out/a.txt').toString(), 'made\n');
  assert.equal(await c.unlinkBlob(keys, prefix, result.payload), result.payload.chunks);
  assert.ok(progress.some((p) => p.jobId === whole.job.jobId), 'no progress seen');
  console.log('ok whole job');

  // BullMQ's own view of it.
  const seen = await queue.getJob(whole.job.jobId);
  assert.equal(await seen.getState(), 'completed');
  assert.deepEqual(c.verifyResult(key, whole.job, seen.returnvalue), result);
  assert.equal(seen.attemptsMade, 1);
  assert.equal(await queue.getCompletedCount(), 1);
  console.log('ok seen by bullmq');

  const failing = makeJob({ a: 'x' }, { run: [step('one', 'exit 7'), step('two', 'true')] });
  const failed = await run(failing);
  assert.deepEqual([failed.status, failed.code, failed.steps.length, failed.steps[0].exitCode], ['failed', 'step_failed', 1, 7]);
  console.log('ok failing step');

  const late = makeJob({ a: 'x' }, { run: [step('one', 'sleep 600', { timeoutMs: 500 })] });
  const timedOut = await run(late);
  assert.deepEqual([timedOut.status, timedOut.code, timedOut.steps[0].timedOut], ['timed_out', 'timeout', true]);
  console.log('ok time-out');

  // Refusals.
  const forged = makeJob({ a: 'x' });
  const envelope = c.sign(key, 'job', forged.job);
  envelope.job = { ...envelope.job, tenantId: 'other' };
  await refused(forged, 'rejected: bad_signature', envelope);
  const unknown = makeJob({ a: 'x' });
  await refused(unknown, 'rejected: unknown_key', { ...c.sign(key, 'job', unknown.job), keyId: '0123456789abcdef' });
  await refused(makeJob({ a: 'x' }, { pool: 'elsewhere' }), 'rejected: wrong_pool');
  await refused(makeJob({ a: 'x' }, { extra: 1 }), 'rejected: malformed');
  await refused(makeJob({ a: 'x' }, { issuedAt: Date.now() - 800000, notAfter: Date.now() - 60000 }), 'rejected: expired');
  await refused(makeJob({ a: 'x' }, { backends: ['firecracker'] }), 'rejected: backend_not_allowed');
  await refused(makeJob({ a: 'x' }, { image: { name: image.name, digest: 'sha256:' + '0'.repeat(64) } }), 'rejected: unknown_image');
  await refused(makeJob({ a: 'x' }, { limits: { memoryMiB: 1000000 } }), 'rejected: limits');
  console.log('ok refusals');

  // The same job again, after it ended and was removed by its producer: used up.
  await (await queue.getJob(failing.job.jobId)).remove();
  await refused(failing, 'rejected: replayed');
  console.log('ok replay');

  for (const [name, spoil, code] of [
    ['altered', (b) => { b[500] ^= 1; return b; }, 'blob_corrupt'],
    ['truncated', (b) => b.subarray(0, b.length - 1), 'blob_corrupt'],
    ['missing', () => null, 'blob_missing'],
  ]) {
    const made = makeJob({ 'noise.bin': noise });
    const [blob] = made.blobs;
    const spoilt = spoil(blob.chunks.at(-1));
    blob.chunks = spoilt ? [...blob.chunks.slice(0, -1), spoilt] : blob.chunks.slice(0, -1);
    const bad = await run(made);
    assert.deepEqual([bad.status, bad.code], ['error', code], name);
    await until('the chunks are gone', async () => (await chunksLeft(made)) === 0);
  }
  console.log('ok spoilt blobs');

  // What it prints, while it runs; then a signed cancel.
  const live = redis(), told = [];
  live.on('message', (channel, text) => told.push(text));
  await live.subscribe(`${prefix}:live`);
  const endless = makeJob({ a: 'x' }, { run: [step('one', 'echo started; sleep 600')] });
  const cancelled = await add(endless);
  await until('the job is under way', () => progress.some((p) => p.jobId === endless.job.jobId));
  await until('its output is told of', () => told.includes(`${endless.job.jobId} 0`));
  live.disconnect();
  const heard = await keys.getrangeBuffer(c.chunkKey(prefix, `${endless.job.jobId}.live`, 0), 0, 1048604);
  assert.equal(c.unsealLive(key, endless.job, 0, heard).toString(), 'started\n');
  assert.equal(await keys.get(c.chunkKey(prefix, `${endless.job.jobId}.live`, 'n')), '1');
  console.log('ok live logs');
  const { jobId, tenantId, pool } = endless.job;
  await keys.set(`${prefix}:cancel:${jobId}`, JSON.stringify(c.sign(key, 'cancel', { v: 1, jobId, tenantId, pool, at: Date.now() })), 'PX', 600000);
  await keys.publish(`${prefix}:cancel`, jobId);
  const ended = c.verifyResult(key, endless.job, await cancelled.waitUntilFinished(events, WAIT_MS));
  assert.deepEqual([ended.status, ended.code], ['cancelled', 'cancelled']);
  console.log('ok cancel');
});

// SPDX-License-Identifier: Apache-2.0
// worker.mjs MAJOR JOBS: a BullMQ Worker of Node takes jobs that libquavon added, checks them by the contract, and answers
// as a runner would: a signed result with a sealed payload that lists the files of the snapshot.
import * as c from './contract.mjs';
import { assert, bullmq, connection, main, prefix, queueName, redis, setting } from './peer.mjs';

const key = c.readKey(setting('QV_KEY_FILE'));

async function run(keys, bull) {
  assert.equal(bull.opts.attempts, 1);
  assert.deepEqual(bull.opts.removeOnComplete, { age: 3600, count: 1000 });
  assert.deepEqual(bull.opts.removeOnFail, { age: 86400, count: 1000 });
  const job = c.verify(key, 'job', bull.data);
  assert.equal(bull.id, job.jobId);
  assert.equal(bull.name, job.kind);
  assert.equal(job.base.blobId, `${job.jobId}.base`);
  if (job.run[0].argv[0] === 'reject') throw new Error('rejected: unsupported');
  const startedAt = Date.now();
  await bull.updateProgress({ stage: 'preparing' });
  const plain = c.gunzip(await c.getBlob(keys, prefix, key, job.tenantId, job.base));
  assert.equal(c.sha256(plain), job.base.treeSha256);
  const files = c.untar(plain);
  await c.unlinkBlob(keys, prefix, job.base);
  const listing = [...files].map(([path, bytes]) => `${bytes.length} ${path}\n`).join('');
  const made = { 'logs/0.log': listing, 'artefacts/listing.txt': listing };
  const payload = c.snapshot(key, job.tenantId, `${job.jobId}.result`, made);
  await c.putBlob(keys, prefix, payload, 900000);
  const record = { name: job.run[0].name, exitCode: 0, signal: null, timedOut: false, startedMs: 1, durationMs: 2,
    logTotalBytes: Buffer.byteLength(listing), logTruncated: false };
  return c.sign(key, 'result', {
    v: 1, jobId: job.jobId, jobSha256: c.sha256(Buffer.from(c.canonical(job), 'utf8')), tenantId: job.tenantId,
    runnerId: 'node-runner', pool: job.pool, backend: job.backends[0], image: job.image, status: 'succeeded', code: null,
    startedAt, finishedAt: Date.now(), setup: null, steps: [record],
    artefacts: [{ path: 'listing.txt', size: Buffer.byteLength(listing), sha256: c.sha256(Buffer.from(listing)) }],
    artefactsDropped: 0, usage: { userMs: 1, sysMs: 1, maxMemoryBytes: 4096, wallMs: 3, oom: false }, egress: null,
    payload: payload.descriptor,
  });
}

await main(async () => {
  const keys = redis();
  let left = Number(process.argv[3]);
  let finished;
  const all = new Promise((done) => { finished = done; });
  const worker = new bullmq.Worker(queueName, (bull) => run(keys, bull), { connection: connection(), prefix, maxStalledCount: 0 });
  worker.on('error', (error) => console.log(`worker: ${error.message}`));
  const count = () => { if (--left === 0) finished(); };
  worker.on('completed', count);
  worker.on('failed', (bull, error) => { console.log(`failed: ${error.message}`); count(); });
  await all;
  await worker.close();
});

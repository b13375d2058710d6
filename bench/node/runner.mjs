// SPDX-License-Identifier: Apache-2.0
// runner.mjs: the reference runner, as a Node engineer would write it: bullmq's Worker, node:crypto, canonicalize,
// tar-stream, and `docker run` of the image with its entry program. It does what the contract asks of a job: the checks in
// their order, replay guard, cancel key and channel, input verified chunk by chunk on its way in, wall time, output checked and its
// mac too, payload sealed, progress, a signed result, input unlinked. It has no egress, no live log, and measures no usage, as
// `docker run` tells of none. Settings: QV_URL, QV_KEY_FILE, QV_IMAGE, QV_DIGEST, QV_RUNTIME, QV_CONCURRENCY.
import { spawn } from 'node:child_process';
import { createCipheriv, createDecipheriv, createHash, createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { cpus, hostname } from 'node:os';
import { gzipSync } from 'node:zlib';
import { UnrecoverableError, Worker } from 'bullmq';
import canonicalize from 'canonicalize';
import tar from 'tar-stream';
import { connect } from './connect.mjs';

const { QV_URL, QV_KEY_FILE, QV_IMAGE, QV_DIGEST, QV_RUNTIME, QV_CONCURRENCY } = process.env;
const prefix = 'quavon-sandbox', CHUNK = 1048576, runnerId = 'node-reference';
const key = Buffer.from(readFileSync(QV_KEY_FILE, 'ascii').trim(), 'base64');
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
const keyId = sha256(key).slice(0, 16);
const redis = connect(QV_URL);

const mac = (kind, body) => createHmac('sha256', key).update(`quavon/sandbox/${kind}/v1\n${canonicalize(body)}`, 'utf8').digest();
const sign = (kind, body) => ({ keyId, sig: mac(kind, body).toString('base64'), [kind]: body });
const info = (tenant, blobId) => `quavon/sandbox/blob/v1\n${tenant}\n${blobId}`;
const derive = (salt, tenant, blobId) => Buffer.from(hkdfSync('sha256', key, salt, info(tenant, blobId), 32));
const aad = (tenant, blobId, i, n) => Buffer.from(`${info(tenant, blobId)}\n${i}\n${n}`, 'ascii');
const chunkKey = (blobId, i) => `${prefix}:blob:${blobId}:${i}`;

const reject = (code) => { throw new UnrecoverableError(`rejected: ${code}`); };

function verify(envelope) {
  if (envelope?.keyId !== keyId) reject('unknown_key');
  const given = Buffer.from(envelope.sig, 'base64'), right = mac('job', envelope.job);
  if (given.length !== right.length || !timingSafeEqual(given, right)) reject('bad_signature');
  return envelope.job;
}

// A signed word, so that nobody who can write to the server ends a job.
async function isCancelled(jobId) {
  const text = await redis.get(`${prefix}:cancel:${jobId}`);
  if (text === null) return false;
  const envelope = JSON.parse(text), given = Buffer.from(envelope.sig, 'base64'), right = mac('cancel', envelope.cancel);
  return given.length === right.length && timingSafeEqual(given, right) && envelope.cancel.jobId === jobId;
}

const ceilings = { wallMs: 1800000, memoryMiB: 8192, milliCpus: 1000 * cpus().length, pids: 4096, workMiB: 4096, logBytes: 1048576,
  artefactBytes: 67108864, artefactCount: 256 };

// Section 2.1, in its order.
async function admit(bull) {
  const job = verify(bull.data), now = Date.now();
  if (job.v !== 1 || !Array.isArray(job.run) || job.run.length < 1 || job.run.length > 16) reject('malformed');
  if (job.pool !== 'default') reject('wrong_pool');
  if (job.jobId !== bull.id) reject('job_id_mismatch');
  if (now > job.notAfter + 30000) reject('expired');
  if (job.notAfter > now + 930000 || job.issuedAt > now + 30000 || job.notAfter - job.issuedAt < 0 || job.notAfter - job.issuedAt > 900000)
    reject('not_after_too_far');
  const nonce = `${runnerId}:${randomBytes(16).toString('hex')}`;
  if (await redis.set(`${prefix}:replay:${job.jobId}`, nonce, 'PX', job.notAfter - now + 120000, 'NX') === null) reject('replayed');
  if (!job.backends.includes('docker-runsc')) reject('backend_not_allowed');
  if (job.image.name !== QV_IMAGE || job.image.digest !== QV_DIGEST) reject('unknown_image');
  if (Object.entries(job.limits).some(([name, value]) => !(value <= ceilings[name]))) reject('limits');
  if (job.egress.length > 0) reject('egress_not_allowed');
  return job;
}

class JobError extends Error {
  constructor(status, code) {
    super(code);
    Object.assign(this, { status, code });
  }
}

// Chunk by chunk into the sandbox, each verified before it goes on.
async function feed(stdin, job, blob) {
  const secret = derive(Buffer.from(blob.salt, 'base64'), job.tenantId, blob.blobId), digest = createHash('sha256');
  let size = 0;
  let next = redis.getrangeBuffer(chunkKey(blob.blobId, 0), 0, 1048604);
  for (let i = 0; i < blob.chunks; i++) {
    const sealed = await next;
    if (i + 1 < blob.chunks) next = redis.getrangeBuffer(chunkKey(blob.blobId, i + 1), 0, 1048604);
    if (sealed.length === 0) throw new JobError('error', 'blob_missing');
    if (sealed.length < 28 || sealed.length > 1048604) throw new JobError('error', 'blob_corrupt');
    const open = createDecipheriv('aes-256-gcm', secret, sealed.subarray(0, 12));
    open.setAAD(aad(job.tenantId, blob.blobId, i, blob.chunks));
    open.setAuthTag(sealed.subarray(sealed.length - 16));
    const plain = open.update(sealed.subarray(12, sealed.length - 16));
    try { open.final(); } catch { throw new JobError('error', 'blob_corrupt'); }
    digest.update(plain);
    size += plain.length;
    if (!stdin.write(plain)) await new Promise((done) => stdin.once('drain', done));
  }
  if (size !== blob.size || digest.digest('hex') !== blob.sha256) throw new JobError('error', 'blob_corrupt');
}

const limitsOf = (job) => ({ wallMs: 600000, memoryMiB: 2048, milliCpus: 2000, pids: 512, workMiB: 1024, logBytes: 65536,
  artefactBytes: 8388608, artefactCount: 64, ...job.limits });

function start(job, limits) {
  const tmpfs = (path, mib) => ['--tmpfs', `${path}:rw,exec,nosuid,nodev,uid=65532,gid=65532,mode=0700,size=${mib}m`];
  const child = spawn('docker', ['run', '--rm', '-i', `--name=node-${job.jobId}`, `--runtime=${QV_RUNTIME}`, '--network=none', '--read-only', '--cap-drop=ALL',
    '--security-opt=no-new-privileges', '--user=65532:65532', `--memory=${limits.memoryMiB + limits.workMiB + 384}m`,
    `--memory-swap=${limits.memoryMiB + limits.workMiB + 384}m`, `--pids-limit=${4 * limits.pids + 1024}`, `--cpus=${limits.milliCpus / 1000}`,
    `--ulimit=nproc=${limits.pids}`, '--log-driver=none', ...tmpfs('/workspace', limits.workMiB), ...tmpfs('/tmp', 256),
    '--entrypoint=/opt/quavon/entry', job.image.digest], { stdio: ['pipe', 'pipe', 'ignore'] });
  child.stdin.on('error', () => {}); // its output says why
  return child;
}

const kill = (job) => spawn('docker', ['kill', `node-${job.jobId}`], { stdio: 'ignore' });

const zeros = Buffer.alloc(1024);

// Until the two zero blocks behind exit.json; the mac covers every byte before exit.json's header.
async function collect(stdout, streamKey, most) {
  const members = new Map(), raw = [], extract = tar.extract();
  let bytes = 0;
  await new Promise((resolve, refuse) => {
    const look = () => {
      if (!members.has('exit.json')) return;
      const all = Buffer.concat(raw);
      raw.splice(0, raw.length, all);
      if (all.length % 512 === 0 && all.subarray(-1024).equals(zeros)) resolve();
    };
    extract.on('entry', (header, stream, next) => {
      const parts = [];
      stream.on('data', (part) => parts.push(part));
      stream.on('end', () => {
        if (members.has(header.name) || !/^(setup\.json|exit\.json|logs\/(setup|\d+)\.log|steps\/\d+\.json|artefacts\/.+)$/.test(header.name))
          refuse(new JobError('error', 'bad_output'));
        members.set(header.name, Buffer.concat(parts));
        next();
        look();
      });
    });
    extract.on('error', () => refuse(new JobError('error', 'bad_output')));
    stdout.on('data', (part) => {
      raw.push(part);
      bytes += part.length;
      if (bytes > most) refuse(new JobError('error', 'bad_output'));
      extract.write(part);
      look();
    });
    stdout.on('end', () => refuse(new JobError('error', 'sandbox_lost')));
  });
  const all = raw[0], exit = JSON.parse(members.get('exit.json')), body = members.get('exit.json').length;
  const { mac: given, ...rest } = exit;
  const right = createHmac('sha256', streamKey).update(all.subarray(0, all.length - 1024 - Math.ceil(body / 512) * 512 - 512))
    .update(canonicalize(rest), 'utf8').digest();
  const claimed = Buffer.from(given, 'base64');
  if (claimed.length !== right.length || !timingSafeEqual(claimed, right)) throw new JobError('error', 'bad_output');
  return { members, exit };
}

async function seal(job, members) {
  const pack = tar.pack(), parts = [], blobId = `${job.jobId}.result`;
  pack.on('data', (part) => parts.push(part));
  for (const [name, bytes] of [...members].sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b))))
    if (name.startsWith('logs/') || name.startsWith('artefacts/'))
      pack.entry({ name, mode: 0o644, mtime: new Date(0), uid: 0, gid: 0 }, bytes);
  pack.finalize();
  await new Promise((done) => pack.on('end', done));
  const tarBytes = Buffer.concat(parts);
  if (tarBytes.length <= 1024) return null;
  const plain = gzipSync(tarBytes, { level: 1 });
  plain[9] = 255;
  const salt = randomBytes(32), secret = derive(salt, job.tenantId, blobId), n = Math.ceil(plain.length / CHUNK);
  for (let i = 0; i < n; i++) {
    const iv = randomBytes(12), cipher = createCipheriv('aes-256-gcm', secret, iv);
    cipher.setAAD(aad(job.tenantId, blobId, i, n));
    const sealed = Buffer.concat([iv, cipher.update(plain.subarray(i * CHUNK, (i + 1) * CHUNK)), cipher.final(), cipher.getAuthTag()]);
    await redis.set(chunkKey(blobId, i), sealed, 'PX', 900000);
  }
  return { blobId, size: plain.length, chunks: n, sha256: sha256(plain), salt: salt.toString('base64'), treeSha256: sha256(tarBytes) };
}

function verdict(job, setup, steps, exit) {
  if (exit.code !== null) throw new JobError(exit.code === 'disk' ? 'failed' : 'error', exit.code);
  if ([setup, ...steps].some((step) => step?.timedOut)) return ['timed_out', 'timeout'];
  if (setup && setup.exitCode !== 0) return ['failed', 'setup_failed'];
  const failed = steps.length < job.run.length || steps.some((step, i) => step.exitCode !== 0 && !job.run[i].continueOnFailure);
  return failed ? ['failed', 'step_failed'] : ['succeeded', null];
}

const running = new Map(); // job id: what ends it

// The sandbox's side of a job: bytes in, members out.
async function inSandbox(job, limits, startedAt, bull) {
  const streamKey = randomBytes(32), child = start(job, limits);
  const stopped = new Promise((resolve, refuse) => {
    const stop = (status, code) => { kill(job); refuse(new JobError(status, code)); };
    running.set(job.jobId, { stop, timer: setTimeout(stop, startedAt + limits.wallMs - Date.now(), 'timed_out', 'wall') });
  });
  stopped.catch(() => {});
  const request = { v: 1, streamKey: streamKey.toString('base64'), base: { size: job.base.size }, overlay: job.overlay && { size: job.overlay.size },
    deletes: job.deletes, setup: job.setup, proxy: null, run: job.run, artefacts: job.artefacts, limits };
  child.stdin.write(`${JSON.stringify(request)}\n`);
  const most = limits.artefactBytes + 17 * limits.logBytes + 1048576;
  const output = collect(child.stdout, streamKey, most);
  output.catch(() => {});
  const work = async () => {
    await feed(child.stdin, job, job.base);
    if (job.overlay) await feed(child.stdin, job, job.overlay);
    bull.updateProgress({ stage: 'step', step: 1, steps: job.run.length, name: job.run[0].name, elapsedMs: 0 }).catch(() => {});
    return output;
  };
  try {
    return await Promise.race([work(), stopped]);
  } catch (error) {
    kill(job);
    throw error;
  } finally {
    clearTimeout(running.get(job.jobId).timer);
    running.delete(job.jobId);
    child.stdin.end();
  }
}

async function run(bull) {
  const job = await admit(bull), startedAt = Date.now();
  const limits = limitsOf(job), result = { setup: null, steps: [], artefacts: [], artefactsDropped: 0, payload: null };
  try {
    if (await isCancelled(job.jobId)) throw new JobError('cancelled', 'cancelled');
    bull.updateProgress({ stage: 'preparing', elapsedMs: 0 }).catch(() => {});
    const { members, exit } = await inSandbox(job, limits, startedAt, bull);
    const record = (name) => members.has(name) ? JSON.parse(members.get(name)) : null;
    result.setup = record('setup.json');
    result.steps = job.run.map((_, i) => record(`steps/${i}.json`)).filter(Boolean);
    result.artefacts = [...members].filter(([name]) => name.startsWith('artefacts/'))
      .map(([name, bytes]) => ({ path: name.slice(10), size: bytes.length, sha256: sha256(bytes) }));
    result.artefactsDropped = exit.artefactsDropped;
    [result.status, result.code] = verdict(job, result.setup, result.steps, exit);
    result.payload = await seal(job, members);
  } catch (error) {
    if (!(error instanceof JobError)) console.error(error);
    Object.assign(result, { status: error.status ?? 'error', code: error.status ? error.code : 'sandbox_failed' });
  } finally {
    const blobs = [job.base, job.overlay].filter(Boolean);
    await redis.unlink(...blobs.flatMap((blob) => Array.from({ length: blob.chunks }, (_, i) => chunkKey(blob.blobId, i))));
  }
  return sign('result', { v: 1, jobId: job.jobId, jobSha256: sha256(canonicalize(job)), tenantId: job.tenantId, runnerId, pool: job.pool,
    backend: 'docker-runsc', image: job.image, startedAt, finishedAt: Date.now(), ...result,
    usage: { userMs: 0, sysMs: 0, maxMemoryBytes: 0, wallMs: Date.now() - startedAt, oom: false }, egress: null });
}

async function beat() {
  const at = Date.now();
  const record = { v: 1, runnerId, pool: 'default', version: '0', backend: 'docker-runsc', runtime: { name: 'runsc', version: null }, platform: 'systrap',
    images: [{ name: QV_IMAGE, digest: QV_DIGEST }], hostId: null, kernel: hostname(), cgroup: 'v1', concurrency: Number(QV_CONCURRENCY), busy: 0,
    startedAt: at, at, problems: [], smoke: { at, passed: true, probes: 1, failed: [], requestId: null }, insecure: false };
  await redis.set(`${prefix}:health:${runnerId}`, JSON.stringify(sign('health', record)), 'PX', 90000);
  await redis.zadd(`${prefix}:runners`, at, runnerId);
}

const ears = connect(QV_URL);
await ears.subscribe(`${prefix}:cancel`);
ears.on('message', async (_, jobId) => {
  if (running.has(jobId) && await isCancelled(jobId)) running.get(jobId)?.stop('cancelled', 'cancelled');
});
await beat();
setInterval(beat, 20000);
const worker = new Worker('sandbox', run, { connection: connect(QV_URL), prefix, concurrency: Number(QV_CONCURRENCY), maxStalledCount: 0 });
worker.on('error', (error) => console.error(error));
worker.on('failed', (bull, error) => console.error(error));
await worker.waitUntilReady();
console.log('ready');

// SPDX-License-Identifier: Apache-2.0
// runner.mjs: the reference runner, as a Node engineer would write it: bullmq's Worker, node:crypto, canonicalize,
// tar-stream, and `docker run` of the image with its entry program. It does what the contract asks of a job: signature,
// replay guard, cancel key, input verified chunk by chunk on its way in, output checked and its mac too, payload sealed, a
// signed result, input unlinked. Settings: QV_URL, QV_KEY_FILE, QV_IMAGE, QV_DIGEST, QV_RUNTIME, QV_CONCURRENCY.
import { spawn } from 'node:child_process';
import { createCipheriv, createDecipheriv, createHash, createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { gzipSync } from 'node:zlib';
import { Worker } from 'bullmq';
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

function verify(envelope) {
  if (envelope.keyId !== keyId) throw new Error('rejected: unknown_key');
  const given = Buffer.from(envelope.sig, 'base64'), right = mac('job', envelope.job);
  if (given.length !== right.length || !timingSafeEqual(given, right)) throw new Error('rejected: bad_signature');
  return envelope.job;
}

// Chunk by chunk into the sandbox, each verified before it goes on.
async function feed(stdin, job, blob) {
  const secret = derive(Buffer.from(blob.salt, 'base64'), job.tenantId, blob.blobId), digest = createHash('sha256');
  let size = 0;
  for (let i = 0; i < blob.chunks; i++) {
    const sealed = await redis.getrangeBuffer(chunkKey(blob.blobId, i), 0, 1048604);
    const open = createDecipheriv('aes-256-gcm', secret, sealed.subarray(0, 12));
    open.setAAD(aad(job.tenantId, blob.blobId, i, blob.chunks));
    open.setAuthTag(sealed.subarray(sealed.length - 16));
    const plain = Buffer.concat([open.update(sealed.subarray(12, sealed.length - 16)), open.final()]);
    digest.update(plain);
    size += plain.length;
    if (!stdin.write(plain)) await new Promise((done) => stdin.once('drain', done));
  }
  if (size !== blob.size || digest.digest('hex') !== blob.sha256) throw new Error('blob_corrupt');
}

const limitsOf = (job) => ({ wallMs: 600000, memoryMiB: 2048, milliCpus: 2000, pids: 512, workMiB: 1024, logBytes: 65536,
  artefactBytes: 8388608, artefactCount: 64, ...job.limits });

function start(job, limits) {
  const tmpfs = (path, mib) => ['--tmpfs', `${path}:rw,exec,nosuid,nodev,uid=65532,gid=65532,mode=0700,size=${mib}m`];
  return spawn('docker', ['run', '--rm', '-i', `--runtime=${QV_RUNTIME}`, '--network=none', '--read-only', '--cap-drop=ALL',
    '--security-opt=no-new-privileges', '--user=65532:65532', `--memory=${limits.memoryMiB + limits.workMiB + 384}m`,
    `--memory-swap=${limits.memoryMiB + limits.workMiB + 384}m`, `--pids-limit=${4 * limits.pids + 1024}`, `--cpus=${limits.milliCpus / 1000}`,
    `--ulimit=nproc=${limits.pids}`, '--log-driver=none', ...tmpfs('/workspace', limits.workMiB), ...tmpfs('/tmp', 256),
    '--entrypoint=/opt/quavon/entry', job.image.digest], { stdio: ['pipe', 'pipe', 'ignore'] });
}

// The members in order; the mac covers every byte before exit.json's header.
async function collect(stdout, streamKey) {
  const members = new Map(), raw = [];
  let end;
  const ended = new Promise((done) => { end = done; });
  const extract = tar.extract();
  extract.on('entry', (header, stream, next) => {
    const parts = [];
    stream.on('data', (part) => parts.push(part));
    stream.on('end', () => { members.set(header.name, Buffer.concat(parts)); next(); });
  });
  stdout.on('data', (part) => {
    raw.push(part);
    extract.write(part);
    if (part.length >= 1024 && members.has('exit.json')) end();
  });
  stdout.on('end', end);
  await ended;
  const all = Buffer.concat(raw), exit = JSON.parse(members.get('exit.json'));
  const body = members.get('exit.json').length, at = all.length - 1024 - Math.ceil(body / 512) * 512 - 512;
  const { mac: given, ...rest } = exit;
  const right = createHmac('sha256', streamKey).update(all.subarray(0, at)).update(canonicalize(rest), 'utf8').digest();
  if (!timingSafeEqual(Buffer.from(given, 'base64'), right)) throw new Error('bad_output');
  return { members, exit };
}

async function seal(job, members) {
  const pack = tar.pack(), parts = [], blobId = `${job.jobId}.result`;
  pack.on('data', (part) => parts.push(part));
  for (const [name, bytes] of members)
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

async function run(bull) {
  const job = verify(bull.data), startedAt = Date.now(), limits = limitsOf(job);
  if (await redis.set(`${prefix}:replay:${job.jobId}`, `${runnerId}:${randomBytes(16).toString('hex')}`, 'PX', job.notAfter - Date.now() + 120000, 'NX') === null)
    throw new Error('rejected: replayed');
  if (await redis.get(`${prefix}:cancel:${job.jobId}`) !== null) throw new Error('cancelled');
  const streamKey = randomBytes(32), child = start(job, limits);
  const request = { v: 1, streamKey: streamKey.toString('base64'), base: { size: job.base.size }, overlay: job.overlay && { size: job.overlay.size },
    deletes: job.deletes, setup: job.setup, proxy: null, run: job.run, artefacts: job.artefacts, limits };
  child.stdin.write(`${JSON.stringify(request)}\n`);
  const output = collect(child.stdout, streamKey);
  await feed(child.stdin, job, job.base);
  if (job.overlay) await feed(child.stdin, job, job.overlay);
  const { members, exit } = await output;
  const steps = job.run.map((_, i) => members.get(`steps/${i}.json`)).filter(Boolean).map((text) => JSON.parse(text));
  const failed = steps.length < job.run.length || steps.some((step, i) => step.exitCode !== 0 && !job.run[i].continueOnFailure);
  const payload = await seal(job, members);
  const artefacts = [...members].filter(([name]) => name.startsWith('artefacts/'))
    .map(([name, bytes]) => ({ path: name.slice(10), size: bytes.length, sha256: sha256(bytes) }));
  await redis.unlink(...Array.from({ length: job.base.chunks }, (_, i) => chunkKey(job.base.blobId, i)));
  return sign('result', { v: 1, jobId: job.jobId, jobSha256: sha256(canonicalize(job)), tenantId: job.tenantId, runnerId, pool: job.pool,
    backend: 'docker-runsc', image: job.image, status: failed ? 'failed' : 'succeeded', code: failed ? 'step_failed' : null, startedAt,
    finishedAt: Date.now(), setup: null, steps, artefacts, artefactsDropped: exit.artefactsDropped,
    usage: { userMs: 0, sysMs: 0, maxMemoryBytes: 0, wallMs: Date.now() - startedAt, oom: false }, egress: null, payload });
}

async function beat() {
  const at = Date.now();
  const record = { v: 1, runnerId, pool: 'default', version: '0', backend: 'docker-runsc', runtime: { name: 'runsc', version: null }, platform: 'systrap',
    images: [{ name: QV_IMAGE, digest: QV_DIGEST }], hostId: null, kernel: hostname(), cgroup: 'v1', concurrency: Number(QV_CONCURRENCY), busy: 0,
    startedAt: at, at, problems: [], smoke: { at, passed: true, probes: 1, failed: [], requestId: null }, insecure: false };
  await redis.set(`${prefix}:health:${runnerId}`, JSON.stringify(sign('health', record)), 'PX', 90000);
  await redis.zadd(`${prefix}:runners`, at, runnerId);
}

await beat();
setInterval(beat, 20000);
const worker = new Worker('sandbox', run, { connection: connect(QV_URL), prefix, concurrency: Number(QV_CONCURRENCY), maxStalledCount: 0 });
worker.on('error', (error) => console.error(error));
worker.on('failed', (bull, error) => console.error(error));
await worker.waitUntilReady();
console.log('ready');

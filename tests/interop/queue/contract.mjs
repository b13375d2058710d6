// SPDX-License-Identifier: Apache-2.0
// The wire protocol in Node, written from its page alone: envelopes, blobs, snapshots, payloads. It shares no
// line with the C code, so that what both agree on is the contract.
import { createCipheriv, createDecipheriv, createHash, createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { gunzipSync, gzipSync } from 'node:zlib';

const CHUNK = 1048576;

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

// RFC 8785 for what our bodies hold: no fractions. JavaScript sorts names by UTF-16 code unit, as the RFC does.
export function canonical(value) {
  if (Array.isArray(value)) return '[' + value.map(canonical).join(',') + ']';
  if (value !== null && typeof value === 'object')
    return '{' + Object.keys(value).sort().map((name) => JSON.stringify(name) + ':' + canonical(value[name])).join(',') + '}';
  if (typeof value === 'number' && !Number.isSafeInteger(value)) throw new Error(`not an integer: ${value}`);
  return JSON.stringify(value);
}

// Section 1

export function readKey(file) {
  const bytes = Buffer.from(readFileSync(file, 'ascii').trim(), 'base64');
  if (bytes.length < 32 || bytes.length > 64) throw new Error('key length');
  return { bytes, id: sha256(bytes).slice(0, 16) };
}

const mac = (key, kind, body) =>
  createHmac('sha256', key.bytes).update(`quavon/sandbox/${kind}/v1\n${canonical(body)}`, 'utf8').digest();

export const sign = (key, kind, body) => ({ keyId: key.id, sig: mac(key, kind, body).toString('base64'), [kind]: body });

export function verify(key, kind, envelope) {
  if (canonical(Object.keys(envelope).sort()) !== canonical(['keyId', 'sig', kind].sort())) throw new Error('not an envelope');
  if (envelope.keyId !== key.id) throw new Error('unknown key');
  const given = Buffer.from(envelope.sig, 'base64'), right = mac(key, kind, envelope[kind]);
  if (given.length !== right.length || !timingSafeEqual(given, right)) throw new Error('bad signature');
  return envelope[kind];
}

// Section 3

const blobInfo = (tenant, blobId) => `quavon/sandbox/blob/v1\n${tenant}\n${blobId}`;
const blobKey = (key, salt, tenant, blobId) => Buffer.from(hkdfSync('sha256', key.bytes, salt, blobInfo(tenant, blobId), 32));
const aad = (tenant, blobId, i, n) => Buffer.from(`${blobInfo(tenant, blobId)}\n${i}\n${n}`, 'ascii');

// { descriptor, chunks }
export function seal(key, tenant, blobId, plain, treeSha256) {
  const salt = randomBytes(32), secret = blobKey(key, salt, tenant, blobId), n = Math.ceil(plain.length / CHUNK), chunks = [];
  for (let i = 0; i < n; i++) {
    const iv = randomBytes(12), cipher = createCipheriv('aes-256-gcm', secret, iv);
    cipher.setAAD(aad(tenant, blobId, i, n));
    const text = Buffer.concat([cipher.update(plain.subarray(i * CHUNK, (i + 1) * CHUNK)), cipher.final()]);
    chunks.push(Buffer.concat([iv, text, cipher.getAuthTag()]));
  }
  const descriptor = { blobId, size: plain.length, chunks: n, sha256: sha256(plain), salt: salt.toString('base64'), treeSha256 };
  return { descriptor, chunks };
}

export function unseal(key, tenant, d, chunks) {
  const secret = blobKey(key, Buffer.from(d.salt, 'base64'), tenant, d.blobId);
  if (d.chunks !== chunks.length || d.chunks !== Math.ceil(d.size / CHUNK)) throw new Error('number of chunks');
  const plain = Buffer.concat(chunks.map((sealed, i) => {
    const decipher = createDecipheriv('aes-256-gcm', secret, sealed.subarray(0, 12));
    decipher.setAAD(aad(tenant, d.blobId, i, d.chunks));
    decipher.setAuthTag(sealed.subarray(sealed.length - 16));
    return Buffer.concat([decipher.update(sealed.subarray(12, sealed.length - 16)), decipher.final()]);
  }));
  if (plain.length !== d.size || sha256(plain) !== d.sha256) throw new Error('size or digest of a blob');
  return plain;
}

// Section 10. The salt is the job's own digest (PROTOCOL-NOTES).
export function unsealLive(key, job, n, sealed) {
  const salt = createHash('sha256').update(canonical(job), 'utf8').digest(), blobId = `${job.jobId}.live`;
  const decipher = createDecipheriv('aes-256-gcm', blobKey(key, salt, job.tenantId, blobId), sealed.subarray(0, 12));
  decipher.setAAD(aad(job.tenantId, blobId, n, '*'));
  decipher.setAuthTag(sealed.subarray(sealed.length - 16));
  return Buffer.concat([decipher.update(sealed.subarray(12, sealed.length - 16)), decipher.final()]);
}

export const chunkKey = (prefix, blobId, i) => `${prefix}:blob:${blobId}:${i}`;

export async function putBlob(redis, prefix, sealed, ttlMs) {
  for (const [i, chunk] of sealed.chunks.entries()) await redis.set(chunkKey(prefix, sealed.descriptor.blobId, i), chunk, 'PX', ttlMs);
}

export async function getBlob(redis, prefix, key, tenant, d) {
  const chunks = [];
  for (let i = 0; i < d.chunks; i++) chunks.push(await redis.getrangeBuffer(chunkKey(prefix, d.blobId, i), 0, 1048604));
  return unseal(key, tenant, d, chunks);
}

export const unlinkBlob = (redis, prefix, d) =>
  redis.unlink(...Array.from({ length: d.chunks }, (_, i) => chunkKey(prefix, d.blobId, i)));

// Section 4. files: { path: { text, executable } or text }

function header(name, size, mode, type) {
  const h = Buffer.alloc(512);
  h.write(name, 0, 'utf8');
  h.write(mode, 100);
  for (const at of [108, 116, 329, 337]) h.write('0000000', at);
  h.write(size.toString(8).padStart(11, '0'), 124);
  h.write('0'.repeat(11), 136);
  h.write(type, 156);
  h.write('ustar', 257);
  h.write('00', 263);
  h.write('        ', 148);
  let sum = 0;
  for (const byte of h) sum += byte;
  h.write(sum.toString(8).padStart(6, '0') + '\0 ', 148);
  return h;
}

const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)]);

function paxRecord(path) {
  const rest = ` path=${path}\n`, n = Buffer.byteLength(rest);
  let len = n + 1;
  while (String(len).length + n !== len) len = String(len).length + n;
  return Buffer.from(`${len}${rest}`);
}

export function tar(files) {
  const paths = Object.keys(files).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  const parts = [];
  for (const path of paths) {
    const file = typeof files[path] === 'object' && !Buffer.isBuffer(files[path]) ? files[path] : { text: files[path] };
    const bytes = Buffer.from(file.text), mode = file.executable ? '0000755' : '0000644';
    let name = path;
    if (Buffer.byteLength(path) > 100) {
      const record = paxRecord(path);
      parts.push(header('pax', record.length, '0000644', 'x'), padded(record));
      name = 'pax';
    }
    parts.push(header(name, bytes.length, mode, '0'), padded(bytes));
  }
  parts.push(Buffer.alloc(1024));
  return Buffer.concat(parts);
}

export function untar(bytes) {
  const files = new Map();
  let at = 0, long = null;
  for (;;) {
    const h = bytes.subarray(at, at + 512);
    if (h.length !== 512) throw new Error('tar ends early');
    at += 512;
    if (h.every((byte) => byte === 0)) break;
    const text = (from, n) => { const s = h.toString('utf8', from, from + n), z = s.indexOf('\0'); return z < 0 ? s : s.slice(0, z); };
    if (text(257, 6) !== 'ustar') throw new Error('not ustar');
    const size = parseInt(text(124, 12), 8), type = text(156, 1), body = bytes.subarray(at, at + size);
    at += Math.ceil(size / 512) * 512;
    if (type === 'x') {
      long = /^\d+ path=(.*)\n$/s.exec(body.toString('utf8'))[1];
    } else if (type === '0') {
      const path = long ?? text(0, 100);
      if (files.has(path)) throw new Error('a path twice');
      files.set(path, body);
      long = null;
    } else {
      throw new Error(`type ${type}`);
    }
  }
  if (bytes.length !== at + 512 || bytes.subarray(at).some((byte) => byte !== 0)) throw new Error('end of tar');
  return files;
}

export function gzip(plain) {
  const members = [];
  for (let i = 0; i < plain.length; i += CHUNK) {
    const member = gzipSync(plain.subarray(i, i + CHUNK), { level: 1 });
    member[9] = 255; // OS: unknown
    members.push(member);
  }
  return Buffer.concat(members);
}

export const gunzip = (bytes) => gunzipSync(bytes);

export function snapshot(key, tenant, blobId, files) {
  const plain = tar(files);
  return seal(key, tenant, blobId, gzip(plain), sha256(plain));
}

// Section 2

export const jobOptions = (jobId) => ({
  jobId, attempts: 1, removeOnComplete: { age: 3600, count: 1000 }, removeOnFail: { age: 86400, count: 1000 },
});

// Section 6: what a worker checks before anything else.
export function verifyResult(key, job, text) {
  const envelope = typeof text === 'string' ? JSON.parse(text) : text;
  const result = verify(key, 'result', envelope);
  const same = (name, a, b) => { if (canonical(a) !== canonical(b)) throw new Error(`bad_result: ${name}`); };
  same('v', result.v, 1);
  same('jobId', result.jobId, job.jobId);
  same('jobSha256', result.jobSha256, sha256(Buffer.from(canonical(job), 'utf8')));
  same('tenantId', result.tenantId, job.tenantId);
  same('pool', result.pool, job.pool);
  same('image', result.image, job.image);
  if (!job.backends.includes(result.backend)) throw new Error('bad_result: backend');
  const names = ['artefacts', 'artefactsDropped', 'backend', 'code', 'egress', 'finishedAt', 'image', 'jobId', 'jobSha256', 'payload',
    'pool', 'runnerId', 'setup', 'startedAt', 'status', 'steps', 'tenantId', 'usage', 'v'];
  same('members', Object.keys(result).sort(), names);
  return result;
}

export async function fetchPayload(redis, prefix, key, job, result) {
  if (result.payload === null) return new Map();
  if (result.payload.blobId !== `${job.jobId}.result`) throw new Error('payload id');
  const files = untar(gunzip(await getBlob(redis, prefix, key, job.tenantId, result.payload)));
  for (const { path, size, sha256: digest } of result.artefacts) {
    const bytes = files.get(`artefacts/${path}`);
    if (!bytes || bytes.length !== size || sha256(bytes) !== digest) throw new Error(`artefact ${path}`);
  }
  return files;
}

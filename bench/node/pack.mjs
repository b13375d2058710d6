// SPDX-License-Identifier: Apache-2.0
// pack.mjs FOLDER: what pack.c does, with tar-stream, node:zlib (level 6) and node:crypto, streamed. Wall and CPU ms, bytes.
import { createCipheriv, randomBytes } from 'node:crypto';
import { createReadStream, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import tar from 'tar-stream';

const folder = process.argv[2];
const files = readdirSync(folder, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(folder.length + 1));
files.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));

let bytes = 0, tarBytes = 0;
const pack = tar.pack();
const cipher = createCipheriv('aes-256-gcm', randomBytes(32), randomBytes(12));
const sink = new Writable({ write(chunk, encoding, done) { bytes += chunk.length; done(); } });
const fill = (async () => {
  for (const name of files) {
    const stat = statSync(join(folder, name));
    const entry = pack.entry({ name, size: stat.size, mode: 0o644, mtime: new Date(0) });
    await pipeline(createReadStream(join(folder, name)), entry);
    tarBytes += 512 + Math.ceil(stat.size / 512) * 512;
  }
  pack.finalize();
})();
await Promise.all([fill, pipeline(pack, createGzip({ level: 6 }), cipher, sink)]);
const u = process.cpuUsage();
console.log(`wall_ms ${performance.now().toFixed(1)}\ncpu_ms ${((u.user + u.system) / 1e3).toFixed(1)}\ntar_bytes ${tarBytes}\ngzip_bytes ${bytes}`);

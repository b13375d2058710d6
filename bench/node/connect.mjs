// SPDX-License-Identifier: Apache-2.0
import Redis from 'ioredis';

// unix://user:password@/path or redis://user:password@host:port, as VALKEY_URL has it.
export function connect(url) {
  const [, kind, username, password, rest] = /^(\w+):\/\/([^:]*):([^@]*)@(.*)$/.exec(url);
  const options = { username, password: decodeURIComponent(password), maxRetriesPerRequest: null };
  if (kind === 'unix') return new Redis({ ...options, path: rest });
  const [host, port] = rest.split(/[:/]/);
  return new Redis({ ...options, host, port: Number(port ?? 6379) });
}

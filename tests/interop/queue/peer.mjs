// SPDX-License-Identifier: Apache-2.0
// What the programs here share: settings from the environment, connections, the library of the wanted major.
import assert from 'node:assert/strict';
import { Redis } from 'ioredis';

const env = (name) => {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
};

export const prefix = process.env.QV_PREFIX ?? 'quavon-sandbox';
export const queueName = 'sandbox';

export const connection = (more = {}) => ({
  path: env('QV_SOCKET'), username: env('QV_USER'), password: env('QV_PASSWORD'), maxRetriesPerRequest: null, ...more,
});
export const redis = () => new Redis(connection());

export const major = process.argv[2];
export const bullmq = await import(`bullmq${major}`);
export { assert };

export const setting = env;
export const P = `${prefix}:${queueName}:`;
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Polls, with a long deadline: the machine may be slow.
export async function until(what, condition, ms = 120000) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(50)) {
    const value = await condition();
    if (value) return value;
  }
  throw new Error(`waited ${ms} ms for: ${what}`);
}

// A program ends when its connections are closed; one that hangs is a failure of its own.
export async function main(run) {
  const watchdog = setTimeout(() => { console.log('not ok: still running after 15 minutes'); process.exit(3); }, 900000);
  try {
    await run();
    clearTimeout(watchdog);
    console.log('done');
    process.exit(0);
  } catch (error) {
    console.log(`not ok: ${error.stack}`);
    process.exit(1);
  }
}

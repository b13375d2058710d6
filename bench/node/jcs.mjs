// SPDX-License-Identifier: Apache-2.0
// jcs.mjs FILE SECONDS: canonicalise and HMAC the value of FILE, parsed before; operations a CPU second.
import { readFileSync } from 'node:fs';
import { createHmac } from 'node:crypto';
import canonicalize from 'canonicalize';

const value = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const key = Buffer.alloc(32, 1);
const cpu = () => { const u = process.cpuUsage(); return (u.user + u.system) / 1e6; };
const round = () => { for (let i = 0; i < 200; i++) createHmac('sha256', key).update(canonicalize(value), 'utf8').digest(); };
for (let i = 0; i < 20; i++) round(); // what the compiler needs to know
let n = 0, spent;
const start = cpu();
do { round(); n += 200; spent = cpu() - start; } while (spent < Number(process.argv[3]));
console.log(`jcs_per_cpu_s ${(n / spent).toFixed(1)}`);

// SPDX-License-Identifier: Apache-2.0
// matrix.mjs MAJOR OTHER: each feature of BullMQ that our worker has to live with, against our worker on the other side. Queue, FlowProducer
// and job objects are of MAJOR; QueueEvents and the Node worker of OTHER. Prints a line a feature: row, TAB, feature,
// TAB, whose password it takes, TAB, yes or the reason why not.
//
// Our worker (test_matrix.c) does what a job's data says: { hold: ms } first, then { end: 'ok', 'fail', 'crash' }. It is told to
// pause, to go on, to take so many jobs at once and to let go of those that it holds with lines "do …", and says that it did in the
// key test:did. Nothing here has to happen within a time: what is held is held until it is let go, and a lock runs out when it is told to.
import { assert, bullmq, connection, main, P, prefix, queueName, redis, setting, sleep, until } from './peer.mjs';
import { Redis } from 'ioredis';

const other = await import(`bullmq${process.argv[3]}`);
const mixed = process.argv[2] !== process.argv[3];
const operatorConnection = () => connection({ username: 'admin', password: setting('QV_PASSWORD') });
const operator = new Redis(operatorConnection());

let queue, admin, events, seen = [], told = 0;

const tell = async (what) => {
  told++;
  console.log(`do ${what} ${told}`);
  await until(what, async () => Number(await operator.get('test:did')) >= told);
};

let n = 0;
const id = (name) => `${name}-${++n}`;
const add = (data = {}, options = {}, q = queue) => q.add('check', data, { jobId: id('job'), attempts: 1, ...options });
const state = (job) => job.getState();
const inState = (job, wanted) => until(`${job.id} ${wanted}`, async () => (await state(job)) === wanted);
const saw = (event, job) => until(`${event} of ${job.id}`, () => seen.find((e) => e.event === event && e.jobId === job.id));
const ended = (job) => job.waitUntilFinished(events, 300000);
const HELD = 600000; // longer than a run
const letGo = () => tell('release');
const loseLock = (job) => operator.pexpire(`${P}${job.id}:lock`, 1);
const crashed = (job) => until(`the crash of ${job.id}`, async () => (await operator.get('test:crashed')) === job.id);
const count = (what) => admin.getJobCounts(what).then((c) => c[what]);

// The stream of events begins anew, and what comes in the millisecond of the old one's last entry would be behind that for
// who reads on from there.
async function obliterate() {
  await admin.obliterate({ force: true });
  await sleep(5);
}

async function reset() {
  await obliterate();
  await operator.hset(`${P}meta`, 'opts.maxLenEvents', 10000);
}

// A Node worker of the other major beside ours, or in its place.
async function withNodeWorker(run, processor, options = {}) {
  const worker = new other.Worker(queueName, processor, { connection: operatorConnection(), prefix, maxStalledCount: 0, ...options });
  worker.on('error', () => {});
  try {
    await worker.waitUntilReady();
    return await run(worker);
  } finally {
    await worker.close();
  }
}

const features = [];
const feature = (title, user, run, why) => features.push({ title, user, run, why });

feature('`Queue.add`', 'worker', async () => {
  const job = await add({ end: 'ok' });
  assert.deepEqual(await ended(job), { did: job.id });
});

feature('`Queue.addBulk`', 'worker', async () => {
  const jobs = await queue.addBulk(Array.from({ length: 20 }, () => ({ name: 'check', data: {}, opts: { jobId: id('bulk'), attempts: 1 } })));
  for (const job of jobs) assert.deepEqual(await ended(job), { did: job.id });
});

feature('delayed jobs', 'worker', async () => {
  const from = Date.now(), job = await add({}, { delay: 1500 });
  await saw('delayed', job);
  await ended(job);
  const { processedOn } = await queue.getJob(job.id);
  assert.ok(processedOn - from >= 1400, `early: ${processedOn - from}`);
});

feature('prioritised jobs', 'worker', async () => {
  await tell('pause');
  const low = await add({}, { priority: 9 }), high = await add({}, { priority: 2 }), same = await add({}, { priority: 2 }), none = await add();
  assert.equal(await state(low), 'prioritized');
  await tell('slots 1');
  await tell('resume');
  for (const job of [low, high, same, none]) await ended(job);
  const order = seen.filter((e) => e.event === 'active').map((e) => e.jobId).filter((i) => [low.id, high.id, same.id, none.id].includes(i));
  assert.deepEqual(order, [none.id, high.id, same.id, low.id]);
  await tell('slots 2');
});

feature('`pause` and `resume`', 'operator', async () => {
  await admin.pause();
  const job = await add();
  await sleep(700);
  assert.equal(await admin.isPaused(), true);
  assert.ok(['waiting', 'paused'].includes(await state(job)));
  await admin.resume();
  await ended(job);
}, mixed && 'a pause and its resume must be of one major: 5 renames the list that 6 leaves alone');

feature('`getJobCounts`', 'worker', async () => {
  await tell('pause');
  const done = await count('completed');
  const jobs = [await add(), await add({}, { delay: 600000 }), await add({}, { priority: 3 }), await add({ end: 'fail' })];
  assert.deepEqual(await queue.getJobCounts('wait', 'delayed', 'prioritized', 'active'), { wait: 2, delayed: 1, prioritized: 1, active: 0 });
  await tell('resume');
  await ended(jobs[0]);
  await ended(jobs[2]);
  await inState(jobs[3], 'failed');
  assert.equal(await count('completed'), done + 2);
  assert.equal(await count('failed'), 1);
  await jobs[1].remove();
});

feature('`job.getState`', 'worker', async () => {
  await tell('pause');
  const job = await add({ hold: HELD }), bad = await add({ end: 'fail' });
  assert.equal(await state(job), 'waiting');
  await tell('resume');
  await inState(job, 'active');
  await letGo();
  await inState(job, 'completed');
  await inState(bad, 'failed');
  assert.equal((await queue.getJob(bad.id)).failedReason, 'failed as told');
});

for (const event of ['waiting', 'active', 'completed']) {
  feature(`\`QueueEvents\`: ${event}`, 'worker', async () => {
    const job = await add();
    const found = await saw(event, job);
    if (event === 'completed') assert.deepEqual(found.returnvalue, { did: job.id });
  });
}

feature('`QueueEvents`: failed', 'worker', async () => {
  const job = await add({ end: 'fail' });
  assert.equal((await saw('failed', job)).failedReason, 'failed as told');
});

feature('`QueueEvents`: stalled', 'worker', async () => {
  const job = await add({ end: 'crash' });
  await crashed(job);
  await loseLock(job);
  await saw('stalled', job);
  assert.equal((await saw('failed', job)).failedReason, 'stalled');
});

feature('`QueueEvents`: progress', 'worker', async () => {
  const job = await add({ hold: 500, end: 'progress' });
  assert.deepEqual((await saw('progress', job)).data, { stage: 'collecting', elapsedMs: 7 });
  await ended(job);
  assert.deepEqual((await queue.getJob(job.id)).progress, { stage: 'collecting', elapsedMs: 7 });
});

feature('`QueueEvents`: removed', 'worker', async () => {
  const job = await add();
  await ended(job);
  await job.remove();
  await saw('removed', job);
});

feature('`waitUntilFinished`', 'worker', async () => {
  assert.deepEqual(await ended(await add({ hold: 300 })).then((r) => typeof r.did), 'string');
  await assert.rejects(ended(await add({ end: 'fail' })), { message: 'failed as told' });
});

for (const [option, end, set] of [['removeOnComplete', 'ok', 'completed'], ['removeOnFail', 'fail', 'failed']]) {
  feature(`\`${option}\` by count`, 'worker', async () => {
    const jobs = [];
    for (let i = 0; i < 5; i++) {
      jobs.push(await add({ end }, { [option]: { count: 2 } }));
      await saw(set, jobs[i]);
    }
    await until('two are kept', async () => (await count(set)) === 2);
    assert.equal(await queue.getJob(jobs[0].id), undefined);
    assert.ok(await queue.getJob(jobs[4].id));
  });
  feature(`\`${option}\` by age`, 'worker', async () => {
    const old = await add({ end }, { [option]: { age: 1 } });
    await saw(set, old);
    await sleep(2100);
    const young = await add({ end }, { [option]: { age: 1 } });
    await saw(set, young);
    await until('the old one is gone', async () => (await queue.getJob(old.id)) === undefined);
    assert.ok(await queue.getJob(young.id));
  });
}

feature('`job.remove` while it waits', 'worker', async () => {
  await tell('pause');
  const job = await add(), stays = await add();
  await job.remove();
  assert.equal(await queue.getJob(job.id), undefined);
  await tell('resume');
  await ended(stays);
  assert.equal(await queue.getJob(job.id), undefined);
});

feature('`job.remove` while it is active', 'worker', async () => {
  const job = await add({ hold: HELD });
  await inState(job, 'active');
  await assert.rejects(job.remove(), /locked/);
  await letGo();
  assert.deepEqual(await ended(job), { did: job.id });
});

feature('`obliterate`', 'operator', async () => {
  const held = await add({ hold: HELD });
  await inState(held, 'active');
  await add({}, { delay: 600000 });
  await obliterate();
  assert.deepEqual(await admin.getJobCounts('wait', 'active', 'delayed', 'completed'), { wait: 0, active: 0, delayed: 0, completed: 0 });
  await letGo();
  await ended(await add()); // the worker goes on, without its job
});

feature('`clean`', 'operator', async () => {
  const job = await add();
  await ended(job);
  const held = await add({ hold: HELD });
  await inState(held, 'active');
  await sleep(5);
  assert.ok((await admin.clean(0, 1000, 'completed')).includes(job.id));
  assert.deepEqual(await admin.clean(0, 1000, 'active'), []); // locked
  await letGo();
  await ended(held);
});

feature('`removeOrphanedJobs`', 'operator', async () => {
  await operator.hset(`${P}orphan`, 'name', 'x', 'data', '{}');
  for (const key of ['blob:x.base:0', 'replay:x', 'cancel:x', 'health:x', 'egress:x']) await operator.set(`${prefix}:${key}`, '1', 'PX', 60000);
  const held = await add({ hold: HELD }), delayed = await add({}, { delay: 600000 });
  await inState(held, 'active');
  assert.equal(await admin.removeOrphanedJobs(), 1);
  for (const key of ['blob:x.base:0', 'replay:x', 'cancel:x', 'health:x', 'egress:x']) assert.equal(await operator.get(`${prefix}:${key}`), '1');
  await letGo();
  await ended(held);
  await delayed.remove();
});

feature('rate limit of the queue', 'operator', async () => {
  await admin.setGlobalRateLimit(2, 1500);
  const from = Date.now(), jobs = [await add(), await add(), await add(), await add(), await add()];
  for (const job of jobs) await ended(job);
  assert.ok(Date.now() - from >= 2800, `five jobs at two in 1.5 s took ${Date.now() - from} ms`);
  await admin.removeGlobalRateLimit();
});

feature('concurrency of the queue', 'operator', async () => {
  await admin.setGlobalConcurrency(1);
  const jobs = [await add({ hold: 100 }), await add({ hold: 100 }), await add({ hold: 100 })];
  for (const job of jobs) await saw('completed', job);
  const ids = jobs.map((job) => job.id);
  const turns = seen.filter((e) => ['active', 'completed'].includes(e.event) && ids.includes(e.jobId)).map((e) => e.event);
  assert.deepEqual(turns, ['active', 'completed', 'active', 'completed', 'active', 'completed']); // one after the other
  await admin.removeGlobalConcurrency();
});

feature('`meta`, as each side writes it', 'operator', async () => {
  await operator.del(`${P}meta`);
  await ended(await add()); // our worker writes only what a script needs
  assert.equal(await operator.hget(`${P}meta`, 'version'), null);
  assert.equal(await operator.hget(`${P}meta`, 'opts.maxLenEvents'), '10000');
  const another = new bullmq.Queue(queueName, { connection: connection(), prefix, streams: { events: { maxLen: 20000 } } });
  await until('the version', async () => /^bullmq:/.test((await operator.hget(`${P}meta`, 'version')) ?? ''));
  await ended(await add());
  assert.equal(await operator.hget(`${P}meta`, 'opts.maxLenEvents'), '20000');
  await another.close();
  await operator.hset(`${P}meta`, 'opts.maxLenEvents', 10000);
});

feature("Bull Board's read calls", 'operator', async () => {
  await tell('pause');
  const jobs = [await add({}, { priority: 4 }), await add({}, { delay: 600000 }), await add()];
  await tell('resume');
  await ended(jobs[2]);
  await ended(jobs[0]);
  for (const s of ['active', 'waiting', 'completed', 'failed', 'delayed', 'prioritized', 'paused', 'waiting-children'])
    for (const job of await admin.getJobs([s], 0, 9, false)) assert.ok(job.toJSON().id);
  assert.equal(await admin.isPaused(), false);
  const counts = await admin.getJobCounts();
  assert.equal(counts.delayed, 1);
  const job = await admin.getJob(jobs[2].id), shown = job.toJSON();
  assert.equal(shown.attemptsMade, 1);
  assert.deepEqual(shown.returnvalue, { did: job.id });
  assert.ok(shown.finishedOn >= shown.processedOn && shown.processedOn >= shown.timestamp);
  assert.equal(shown.failedReason, undefined);
  assert.deepEqual((await admin.getJobLogs(job.id)).logs, []);
  const client = await admin.client; // 6 has none: its board asks by a connection of its own
  assert.ok((await (client?.info ? client : operator).info()).includes('redis_version'));
  await until('our worker is listed', async () => (await admin.getWorkers()).some((w) => w.rawname?.endsWith(':w:runner-1') || w.name?.endsWith('runner-1')));
  await admin.getMetrics('completed');
  await admin.getGlobalConcurrency();
  await admin.getJobSchedulers();
  await jobs[1].remove();
});

feature('a Node worker beside ours: none lost, none twice', 'operator', async () => {
  // Node has one before ours goes on, and ends none before ours has: both take part.
  const ran = new Map(), byOurs = () => seen.some((e) => e.event === 'completed' && e.jobId.startsWith('shared-') && !ran.has(e.jobId));
  await tell('pause');
  await withNodeWorker(async () => {
    const jobs = await queue.addBulk(Array.from({ length: 200 }, () => ({ name: 'check', data: { hold: 20 }, opts: { jobId: id('shared'), attempts: 1 } })));
    await until('a job of Node\'s', () => ran.size > 0);
    await tell('resume');
    for (const job of jobs) await ended(job);
    const byNode = jobs.filter((job) => ran.has(job.id)).length;
    assert.ok(byNode > 0 && byNode < 200, `${byNode} of 200 by Node`);
    assert.ok([...ran.values()].every((times) => times === 1));
    for (const job of jobs) {
      await saw('active', job);
      await saw('completed', job);
      assert.equal(seen.filter((e) => e.event === 'active' && e.jobId === job.id).length, 1);
      assert.equal(seen.filter((e) => e.event === 'completed' && e.jobId === job.id).length, 1);
    }
    assert.equal(await count('active'), 0);
  }, async (job) => {
    ran.set(job.id, (ran.get(job.id) ?? 0) + 1);
    await until('a job of ours', byOurs);
    await sleep(20);
    return { did: job.id };
  }, { concurrency: 2 });
});

feature('a job that stalled under Node is failed by ours: `stalled`', 'operator', async () => {
  await tell('pause');
  const job = await add();
  const worker = new other.Worker(queueName, () => new Promise(() => {}), { connection: operatorConnection(), prefix, maxStalledCount: 0,
    lockDuration: 300000, stalledInterval: 60000, skipStalledCheck: true });
  worker.on('error', () => {});
  await inState(job, 'active');
  await worker.close(true); // as if it were killed: the job stays where it is
  await loseLock(job);
  await tell('resume');
  await assert.rejects(ended(job), { message: 'stalled' });
});

feature('a job that stalled under ours is failed by Node: its own text', 'operator', async () => {
  const job = await add({ end: 'crash' });
  await crashed(job);
  await tell('pause');
  await loseLock(job);
  await withNodeWorker(async () => {
    await assert.rejects(ended(job), { message: 'job stalled more than allowable limit' });
  }, async () => 'never', { stalledInterval: 1000 });
  await tell('resume');
});

feature('refused: a job of a scheduler', 'operator', async () => {
  await admin.upsertJobScheduler('every', { every: 3600000 }, { name: 'check', data: {}, opts: { attempts: 1 } });
  const found = await until('the refusal', () => seen.find((e) => e.event === 'failed' && e.jobId.startsWith('repeat:')));
  assert.equal(found.failedReason, 'rejected: unsupported');
  await admin.removeJobScheduler('every');
});

feature('refused: a job with a parent', 'operator', async () => {
  const flow = new bullmq.FlowProducer({ connection: operatorConnection(), prefix });
  const tree = await flow.add({ name: 'check', queueName, data: {}, children: [{ name: 'check', queueName, data: {}, opts: { jobId: id('child'), attempts: 1, failParentOnFailure: true } }] });
  assert.equal((await saw('failed', tree.children[0].job)).failedReason, 'rejected: unsupported');
  assert.equal(typeof (await saw('failed', tree.job)).failedReason, 'string'); // released, and failed in its turn
  const careless = await flow.add({ name: 'check', queueName, data: {}, children: [{ name: 'check', queueName, data: {}, opts: { jobId: id('child'), attempts: 1, ignoreDependencyOnFailure: true } }] });
  assert.equal((await saw('failed', careless.children[0].job)).failedReason, 'rejected: unsupported');
  await saw('completed', careless.job); // its parent asked to go on without it
  await flow.close();
});

feature('refused: a job with deduplication', 'worker', async () => {
  const job = await add({}, { deduplication: { id: 'same' } });
  assert.equal((await saw('failed', job)).failedReason, 'rejected: unsupported');
  const next = await add({}, { deduplication: { id: 'same' } }); // the id is free again
  assert.equal((await saw('failed', next)).failedReason, 'rejected: unsupported');
});

await main(async () => {
  queue = new bullmq.Queue(queueName, { connection: connection(), prefix });
  admin = new bullmq.Queue(queueName, { connection: operatorConnection(), prefix });
  events = new other.QueueEvents(queueName, { connection: connection(), prefix });
  for (const q of [queue, admin, events]) q.on('error', (error) => console.log(`error: ${error.message}`));
  for (const event of ['waiting', 'delayed', 'active', 'completed', 'failed', 'stalled', 'progress', 'removed'])
    events.on(event, (args) => seen.push({ event, ...args }));
  await queue.waitUntilReady();
  await events.waitUntilReady();
  const only = process.env.QV_ONLY;
  for (const { title, user, run, why } of features) {
    if (only && !title.includes(only)) continue;
    if (!why) {
      try {
        await reset();
        await run();
      } catch (error) {
        throw new Error(`${title}: ${error.stack}`);
      }
    }
    console.log(`row\t${title}\t${user}\t${why || 'yes'}`);
  }
  await Promise.all([queue.close(), admin.close(), events.close()]);
});

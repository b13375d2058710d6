-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P, waiting jobs at most, ended jobs at most. What people want to see of a queue. Answers
-- { paused, wait, prioritised, delayed, active, completed, failed, jobs }; a job is { state (1 waiting, 2 active, 3 completed,
-- 4 failed), id, timestamp, processedOn, finishedOn, pb, progress, failedReason }: waiting ones in the order in which they
-- are taken, active ones, then the newest that ended. Job data stays here: it is read, and verified, for those alone that are shown.
local most, ended_most = tonumber(ARGV[2]), tonumber(ARGV[3])
local jobs = {}

local function short(key, field, bytes)
  return call('HSTRLEN', key, field) <= bytes and call('HGET', key, field)
end

local function add(state, id)
  local key = P .. id
  local f = call('HMGET', key, 'timestamp', 'processedOn', 'finishedOn')
  jobs[#jobs + 1] = { state, id, f[1], f[2], f[3], short(key, 'pb', 256), short(key, 'progress', 4096),
    state == 4 and short(key, 'failedReason', 1024) }
end

local function waiting_in(list, left)
  local n = call('LLEN', list)
  for i = n - 1, math.max(0, n - left), -1 do
    add(1, call('LINDEX', list, i))
  end
  return math.max(0, left - n)
end

local left = waiting_in(P .. 'paused', waiting_in(P .. 'wait', most))
for _, set in ipairs({ 'prioritized', 'delayed' }) do
  if left > 0 then
    for _, id in ipairs(call('ZRANGE', P .. set, 0, left - 1)) do
      add(1, id)
      left = left - 1
    end
  end
end
local active = call('LLEN', P .. 'active')
for i = math.min(active, 1000) - 1, 0, -1 do
  add(2, call('LINDEX', P .. 'active', i))
end
if ended_most > 0 then
  for state, set in pairs({ [3] = 'completed', [4] = 'failed' }) do
    for _, id in ipairs(call('ZRANGE', P .. set, 0, ended_most - 1, 'REV')) do
      add(state, id)
    end
  end
end
return { call('HGET', P .. 'meta', 'paused') and 1 or 0, call('LLEN', P .. 'wait') + call('LLEN', P .. 'paused'),
  call('ZCARD', P .. 'prioritized'), call('ZCARD', P .. 'delayed'), active, call('ZCARD', P .. 'completed'),
  call('ZCARD', P .. 'failed'), jobs }

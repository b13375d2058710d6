-- SPDX-License-Identifier: Apache-2.0
-- What every script starts with. ARGV[1] is <prefix>:sandbox: (P in docs/QUEUE.md);
-- all keys are below it. Numbers arrive as decimal text.
local P = ARGV[1]
local call = redis.call

local function emit(...)
  local max = call('HGET', P .. 'meta', 'opts.maxLenEvents')
  if not max then
    max = '10000'
    call('HSET', P .. 'meta', 'opts.maxLenEvents', max)
  end
  call('XADD', P .. 'events', 'MAXLEN', '~', max, '*', 'event', ...)
end

-- Paused, or as many active as the queue may have in all.
local function held()
  local meta = call('HMGET', P .. 'meta', 'paused', 'concurrency')
  if meta[1] then
    return true
  end
  local most = tonumber(meta[2])
  return most ~= nil and call('LLEN', P .. 'active') >= most
end

local function wake()
  if not held() then
    call('ZADD', P .. 'marker', 0, '0')
  end
end

-- BullMQ 5 keeps a paused queue's jobs in `paused` and renames that list over
-- `wait` at resume; 6 leaves them in `wait`.
local function wait_list()
  local meta = call('HMGET', P .. 'meta', 'paused', 'version')
  if meta[1] and meta[2] and string.sub(meta[2], 1, 9) == 'bullmq:5.' then
    return P .. 'paused'
  end
  return P .. 'wait'
end

-- A priority orders by itself first, then by a counter.
local function add_prioritized(id, priority)
  local n = call('INCR', P .. 'pc')
  call('ZADD', P .. 'prioritized', priority * 4294967296 + n % 4294967296, id)
end

local function remove_job(id)
  local key = P .. id
  call('DEL', key, key .. ':lock', key .. ':logs', key .. ':dependencies', key .. ':processed', key .. ':failed',
    key .. ':unsuccessful')
end

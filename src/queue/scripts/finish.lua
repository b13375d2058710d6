-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P, id, token, now, 'completed' or 'failed', text, keep count (-1: all), keep
-- seconds (-1: for ever), removals at most, attempts, again (1 or 0), fetch (1 or 0), then
-- for fetch: token, lock_ms, worker, data_max, order; then keys of ours that go with the job.
-- Answers { code } or { code, what take answered }. Codes: 0 done, -1 no such job, -2 no
-- lock, -3 not active, -4 children pending, -6 another's lock, -9 children failed.
local id, token, now, state, text = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local key = P .. id
local set = P .. state
local field = state == 'completed' and 'returnvalue' or 'failedReason'

local function trim(count, age_s, limit)
  local old = {}
  if age_s >= 0 then
    old = call('ZRANGEBYSCORE', set, 0, now - age_s * 1000, 'LIMIT', 0, limit)
    for _, gone in ipairs(old) do
      remove_job(gone)
      call('ZREM', set, gone)
    end
  end
  if count > 0 then
    local over = math.min(call('ZCARD', set) - count, limit)
    if over > 0 then
      for _, gone in ipairs(call('ZRANGE', set, 0, over - 1)) do
        remove_job(gone)
        call('ZREM', set, gone)
      end
    end
  end
end

local function put_in_line(job, prev)
  local f = call('HMGET', P .. job, 'priority', 'delay')
  local priority, delay = tonumber(f[1]) or 0, tonumber(f[2]) or 0
  if delay > 0 then
    call('ZADD', P .. 'delayed', (now + delay) * 4096, job)
    call('ZADD', P .. 'marker', 'LT', now + delay, '1') -- others may be due earlier
    emit('delayed', 'jobId', job, 'delay', now + delay)
    return
  elseif priority > 0 then
    add_prioritized(job, priority)
  else
    call('LPUSH', wait_list(), job)
  end
  wake()
  emit('waiting', 'jobId', job, unpack(prev))
end

-- The job that a producer left for when this one ends (keepLastIfActive).
local function add_next(dedup)
  local stored = P .. 'dn:' .. dedup
  local f = call('HMGET', stored, 'name', 'data', 'opts', 'jid', 'pk', 'pd', 'rjk')
  call('DEL', stored)
  local ok, opts = pcall(cjson.decode, f[3] or '{}')
  opts = ok and type(opts) == 'table' and opts or {}
  local count = call('INCR', P .. 'id')
  local next_id = f[4] and f[4] ~= '' and f[4] or tostring(count)
  if not f[1] or not f[2] or call('EXISTS', P .. next_id) == 1 then
    return
  end
  call('HSET', P .. next_id, 'name', f[1], 'data', f[2], 'opts', f[3] or '{}', 'timestamp', now, 'deid', dedup,
    'delay', tonumber(opts.delay) or 0, 'priority', tonumber(opts.priority) or 0)
  for i, field in pairs({ [5] = 'parentKey', [6] = 'parent', [7] = 'rjk' }) do
    if f[i] and f[i] ~= '' then
      call('HSET', P .. next_id, field, f[i])
    end
  end
  call('SET', P .. 'de:' .. dedup, next_id)
  emit('added', 'jobId', next_id, 'name', f[1])
  put_in_line(next_id, {})
end

local function release_deduplication()
  local dedup = call('HGET', key, 'deid')
  if not dedup then
    return
  end
  local owner = P .. 'de:' .. dedup
  local left = call('PTTL', owner)
  if left == 0 or (left == -1 and call('GET', owner) == id) then
    call('DEL', owner)
  end
  if call('EXISTS', P .. 'dn:' .. dedup) == 1 then
    add_next(dedup)
  end
end

-- Of a child that failed, what its own options say happens to its parent: that fails (fpof), goes on at once (cpof), or does not wait for
-- this one (idof, rdof). A parent in another queue is not ours to touch. Children never complete here: they are refused.
local function release_parent()
  local f = call('HMGET', key, 'parentKey', 'parent')
  local ok, parent = pcall(cjson.decode, f[2] or '')
  local parent_key = f[1]
  if not parent_key or not ok or type(parent) ~= 'table' or string.sub(parent_key, 1, #P) ~= P or
    string.find(parent_key, ':', #P + 1, true) or redis.pcall('HEXISTS', parent_key, 'data') ~= 1 then
    return
  end
  local fails, goes_on, drops = parent.fpof == true, parent.cpof == true, parent.rdof == true
  if not (fails or goes_on or drops or parent.idof == true) then
    return -- it waits on, as under BullMQ
  end
  call('SREM', parent_key .. ':dependencies', key)
  local now_free = fails or goes_on or call('SCARD', parent_key .. ':dependencies') == 0
  if fails then
    call('ZADD', parent_key .. ':unsuccessful', now, key)
    call('HSET', parent_key, 'defa', 'child ' .. key .. ' failed')
  elseif not drops then
    call('HSET', parent_key .. ':failed', key, text)
  end
  local parent_id = string.sub(parent_key, #P + 1)
  if now_free and call('ZREM', P .. 'waiting-children', parent_id) == 1 then
    put_in_line(parent_id, { 'prev', 'waiting-children' })
  end
end

local function store(count, age_s, limit, attempts)
  local made = call('HINCRBY', key, 'atm', 1)
  if count ~= 0 then
    call('ZADD', set, now, id)
    call('HSET', key, field, text, 'finishedOn', now)
    if state == 'failed' then
      call('HSET', key, 'stacktrace', '[]')
      call('HDEL', key, 'defa')
    end
    trim(count, age_s, limit)
  else
    remove_job(id)
  end
  emit(state, 'jobId', id, field, text, 'prev', 'active')
  if state == 'failed' and made >= attempts then
    emit('retries-exhausted', 'jobId', id, 'attemptsMade', made)
  end
end

local function finish()
  if call('EXISTS', key) == 0 then
    return -1
  end
  if ARGV[11] == '1' and call('ZSCORE', set, id) and call('HGET', key, field) == text then
    return 0 -- the first try worked, its reply was lost
  end
  if state == 'completed' then
    if call('SCARD', key .. ':dependencies') > 0 then
      return -4
    end
    if call('ZCARD', key .. ':unsuccessful') > 0 then
      return -9
    end
  end
  local lock = call('GET', key .. ':lock')
  if not lock then
    return -2
  elseif lock ~= token then
    return -6
  end
  call('DEL', key .. ':lock')
  call('SREM', P .. 'stalled', id)
  if call('LREM', P .. 'active', -1, id) == 0 then
    return -3
  end
  release_deduplication()
  if state == 'failed' then
    release_parent()
  end
  store(tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]))
  for i = 18, #ARGV, 500 do
    call('UNLINK', unpack(ARGV, i, math.min(i + 499, #ARGV)))
  end
  return 0
end

local code = finish()
local next = false
if ARGV[12] == '1' then
  next = take(ARGV[13], ARGV[14], now, ARGV[15], tonumber(ARGV[16]), ARGV[11] == '1', ARGV[17], '')
end
if code == 0 and not (next and next[1] == 1) then
  if call('LLEN', P .. 'wait') > 0 or call('ZCARD', P .. 'prioritized') > 0 then
    if call('HEXISTS', P .. 'meta', 'concurrency') == 1 then
      wake() -- this one's place is free now, for another worker
    end
  elseif call('LLEN', P .. 'active') == 0 then
    emit('drained')
  end
end
return { code, next }

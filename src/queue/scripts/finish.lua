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
  store(tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]))
  for i = 18, #ARGV, 500 do
    call('UNLINK', unpack(ARGV, i, math.min(i + 499, #ARGV)))
  end
  return 0
end

local code = finish()
local next = false
if ARGV[12] == '1' then
  next = take(ARGV[13], ARGV[14], now, ARGV[15], tonumber(ARGV[16]), ARGV[11] == '1', ARGV[17])
end
if code == 0 and not (next and next[1] == 1) and call('LLEN', P .. 'wait') == 0 and call('LLEN', P .. 'active') == 0 and
  call('ZCARD', P .. 'prioritized') == 0 then
  emit('drained')
end
return { code, next }

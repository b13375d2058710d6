-- SPDX-License-Identifier: Apache-2.0
-- take(token, lock_ms, now, worker, data_max, again, order, pass): the next job into `active`
-- under a lock. A table that starts with 1 and the job, or 0, the ms to wait for
-- the rate limit (-1: none) and the ms at which the first delayed job is due (-1).
-- order: '' for BullMQ's own order; else lines '-T' for a tenant that may have no more
-- now, and '=T' for tenants that had a job lately, the latest last. Then the next job is the
-- first one whose tenant had none lately, else the first of the tenant that had one longest
-- ago. Jobs that are passed over stay where they are; where all that wait are, and pass is not '', it
-- is added as a marker: another worker may take them.
local LOOK_MAX, LOOK_PAGE, DECODE_MAX, CUT_SHORT_MS = 2000, 200, 4194304, 50
local passed_over, cut_short = false, false

local function promote(now)
  local due = call('ZRANGEBYSCORE', P .. 'delayed', 0, (now + 1) * 4096 - 1, 'LIMIT', 0, 1000)
  for _, id in ipairs(due) do
    call('ZREM', P .. 'delayed', id)
    local key = P .. id
    if call('EXISTS', key) == 1 then
      local priority = tonumber(call('HGET', key, 'priority')) or 0
      if priority > 0 then
        add_prioritized(id, priority)
      else
        call('LPUSH', wait_list(), id)
      end
      emit('waiting', 'jobId', id, 'prev', 'delayed')
      call('HSET', key, 'delay', 0)
    end
  end
  if #due > 0 then
    wake()
  end
end

local function ranks(order)
  local rank, n = {}, 0
  for mark, tenant in string.gmatch(order, '([-=])([^\n]+)') do
    n = n + 1
    rank[tenant] = mark == '-' and -1 or n
  end
  return rank
end

-- The tenant that a job's data names, kept in the job's hash from the first look on: unsigned, so that it orders and decides
-- nothing. '' for what is no job of ours or must be failed anyway. nil: too much was read for one script.
local function tenant_of(id, look)
  local key = P .. id
  local f = redis.pcall('HMGET', key, 'qvTenant', 'defa')
  if f.err then -- no hash: take looks once more, and drops it
    return ''
  elseif f[1] or f[2] then
    return not f[2] and f[1] or ''
  end
  local bytes = call('HSTRLEN', key, 'data')
  if bytes == 0 or bytes > look.data_max then
    return ''
  elseif bytes > look.decode_left and look.decode_left < DECODE_MAX then
    return nil
  end
  look.decode_left = look.decode_left - bytes
  local ok, data = pcall(cjson.decode, call('HGET', key, 'data'))
  local job = ok and type(data) == 'table' and data.job
  local tenant = type(job) == 'table' and job.tenantId
  if type(tenant) ~= 'string' or #tenant > 128 or string.find(tenant, '\n', 1, true) then
    tenant = ''
  end
  call('HSET', key, 'qvTenant', tenant)
  return tenant
end

-- TRUE: no better one can come.
local function consider(id, list, look)
  local tenant = tenant_of(id, look)
  local rank = tenant and (look.rank[tenant] or 0)
  passed_over = passed_over or rank == -1
  cut_short = cut_short or tenant == nil
  if rank and rank >= 0 and (not look.best_rank or rank < look.best_rank) then
    look.best_rank, look.best, look.list = rank, id, list
  end
  return rank == nil or rank == 0
end

local function look_through(look)
  for page = 0, LOOK_MAX - 1, LOOK_PAGE do
    local ids = call('LRANGE', P .. 'wait', -page - LOOK_PAGE, -page - 1)
    for i = #ids, 1, -1 do
      if string.sub(ids[i], 1, 2) == '0:' then -- a wake-up mark of BullMQ 4
        call('LREM', P .. 'wait', -1, ids[i])
      elseif consider(ids[i], 'wait', look) then
        return
      end
    end
    if #ids < LOOK_PAGE then
      break
    end
  end
  for _, id in ipairs(call('ZRANGE', P .. 'prioritized', 0, LOOK_MAX - 1)) do
    if consider(id, 'prioritized', look) then
      return
    end
  end
end

local function pop_fair(order, data_max)
  local look = { rank = ranks(order), data_max = data_max, decode_left = DECODE_MAX }
  look_through(look)
  if look.list == 'wait' then
    call('LREM', P .. 'wait', -1, look.best)
  elseif look.list then
    call('ZREM', P .. 'prioritized', look.best)
  elseif call('ZCARD', P .. 'prioritized') == 0 then
    call('DEL', P .. 'pc')
  end
  if look.best then
    call('LPUSH', P .. 'active', look.best)
  end
  return look.best
end

local function pop(order, data_max)
  if order ~= '' then
    return pop_fair(order, data_max)
  end
  local id = call('RPOPLPUSH', P .. 'wait', P .. 'active')
  while id and string.sub(id, 1, 2) == '0:' do -- a wake-up mark of BullMQ 4
    call('LREM', P .. 'active', 1, id)
    id = call('RPOPLPUSH', P .. 'wait', P .. 'active')
  end
  if id then
    return id
  end
  local first = call('ZPOPMIN', P .. 'prioritized')
  if first[1] then
    call('LPUSH', P .. 'active', first[1])
    return first[1]
  end
  call('DEL', P .. 'pc')
end

local function describe(id, data_max)
  local key = P .. id
  local bytes = call('HSTRLEN', key, 'data')
  local data, opts = false, false
  if bytes > 0 and bytes <= data_max then
    data = call('HGET', key, 'data')
  end
  if call('HSTRLEN', key, 'opts') <= 65536 then
    opts = call('HGET', key, 'opts')
  end
  local f = call('HMGET', key, 'name', 'timestamp', 'processedOn', 'ats', 'stc', 'defa', 'rjk', 'parent', 'parentKey', 'deid')
  local function has(i)
    return f[i] and 1 or 0
  end
  return { 1, id, f[1] and string.sub(f[1], 1, 1024), data, bytes, opts, f[2], f[3], f[4], f[5],
    f[6] and string.sub(f[6], 1, 1024), has(7), has(8), has(9), has(10) }
end

-- A key of another type is no job, and no reason for the queue to stand still. Any other error is one: a right that is
-- missing must not read as a job that is not there.
local function is_hash(key)
  local answer = redis.pcall('HEXISTS', key, 'data')
  return type(answer) == 'number' or not string.find(answer.err, 'WRONGTYPE', 1, true) and call('HEXISTS', key, 'data') ~= nil
end

local function start(id, token, lock_ms, now, worker, max, duration)
  local key = P .. id
  if max and call('HEXISTS', key, 'defa') == 0 then
    if call('INCR', P .. 'limiter') == 1 then
      call('PEXPIRE', P .. 'limiter', duration)
    end
  end
  call('SET', key .. ':lock', token, 'PX', lock_ms)
  emit('active', 'jobId', id, 'prev', 'waiting')
  call('HSET', key, 'processedOn', now)
  if worker ~= '' then
    call('HSET', key, 'pb', worker)
  end
  call('HINCRBY', key, 'ats', 1)
  call('ZADD', P .. 'marker', 0, '0') -- the next idle worker wakes and looks
end

local function take(token, lock_ms, now, worker, data_max, again, order, pass)
  if again then -- the reply of a first try with this token was lost
    for _, id in ipairs(call('LRANGE', P .. 'active', 0, -1)) do
      if call('GET', P .. id .. ':lock') == token then
        call('SET', P .. id .. ':lock', token, 'PX', lock_ms)
        return describe(id, data_max)
      end
    end
  end
  promote(now)
  local meta = call('HMGET', P .. 'meta', 'max', 'duration')
  local max, duration = tonumber(meta[1]), tonumber(meta[2]) or 1000
  if max and (tonumber(call('GET', P .. 'limiter')) or 0) >= max then
    local left = call('PTTL', P .. 'limiter')
    if left > 0 then
      return { 0, left, -1 }
    elseif left == 0 then
      call('DEL', P .. 'limiter')
    end
  end
  if not held() then
    local id = pop(order, data_max)
    while id do
      if is_hash(P .. id) and call('EXISTS', P .. id) == 1 then
        start(id, token, lock_ms, now, worker, max, duration)
        return describe(id, data_max)
      end
      call('LREM', P .. 'active', 1, id) -- its hash was removed: nothing to run, nothing to fail
      id = pop(order, data_max)
    end
    if passed_over and pass ~= '' then
      call('ZADD', P .. 'marker', 0, pass)
    end
    if cut_short then
      return { 0, CUT_SHORT_MS, -1 } -- what was read is kept: the next look gets further
    end
  end
  local first = call('ZRANGE', P .. 'delayed', 0, 0, 'WITHSCORES')
  return { 0, -1, first[2] and math.floor(tonumber(first[2]) / 4096) or -1 }
end

-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P, 1 (pause) or 0 (resume). As BullMQ's pause, without RENAME: its major 5 keeps the jobs of a paused queue
-- in `paused`, 6 leaves them in `wait` and still takes over what 5 left. Answers 1 where something changed.
local meta = P .. 'meta'
local pausing = ARGV[2] == '1'
local paused = call('HMGET', meta, 'paused', 'version')

-- Lists grow at the left: the oldest job is the last.
local function take_all(list)
  local ids = {}
  for i = call('LLEN', list) - 1, 0, -1 do
    ids[#ids + 1] = call('LINDEX', list, i)
  end
  call('DEL', list)
  return ids
end

-- What is in `from` goes before what is in `to`.
local function move(from, to)
  if call('EXISTS', from) == 0 then
    return
  end
  local first, second = take_all(from), take_all(to)
  for _, id in ipairs(first) do
    call('LPUSH', to, id)
  end
  for _, id in ipairs(second) do
    call('LPUSH', to, id)
  end
end

if pausing == (paused[1] and true or false) then
  return 0
end
if pausing then
  call('HSET', meta, 'paused', 1)
  if paused[2] and string.sub(paused[2], 1, 9) == 'bullmq:5.' then
    move(P .. 'wait', P .. 'paused')
  end
  call('DEL', P .. 'marker')
else
  call('HDEL', meta, 'paused')
  move(P .. 'paused', P .. 'wait')
  -- The next idle worker wakes and looks; it finds delayed jobs too.
  call('ZADD', P .. 'marker', 0, '0')
end
emit(pausing and 'paused' or 'resumed')
return 1

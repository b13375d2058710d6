-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P, interval_ms. One check an interval for the whole queue. A job that was active
-- at the last check, was not renewed since and has no lock goes back to be taken next, marked
-- to be failed (maxStalledCount 0). Answers how many.
if call('EXISTS', P .. 'stalled-check') == 1 then
  return 0
end
call('SET', P .. 'stalled-check', '1', 'PX', ARGV[2])
local found = 0
for _, id in ipairs(call('SMEMBERS', P .. 'stalled')) do
  local key = P .. id
  if call('EXISTS', key .. ':lock') == 0 and call('LREM', P .. 'active', 1, id) == 1 then
    if call('EXISTS', key) == 1 then
      call('HINCRBY', key, 'stc', 1)
      call('HSET', key, 'defa', 'job stalled more than allowable limit')
      call('RPUSH', wait_list(), id)
      emit('waiting', 'jobId', id, 'prev', 'active')
      emit('stalled', 'jobId', id)
      found = found + 1
    end
  end
end
call('DEL', P .. 'stalled')
local active = call('LRANGE', P .. 'active', 0, -1)
for i = 1, #active, 1000 do
  call('SADD', P .. 'stalled', unpack(active, i, math.min(i + 999, #active)))
end
if found > 0 then
  wake()
end
return found

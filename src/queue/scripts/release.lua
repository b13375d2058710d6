-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P, id, token, again, tenant (as verified; '' for unknown). An unrun job back to where it is taken next. Codes as finish.lua.
local id, token = ARGV[2], ARGV[3]
local key = P .. id
if call('EXISTS', key) == 0 then
  return -1
end
local lock = call('GET', key .. ':lock')
if not lock then
  return ARGV[4] == '1' and 0 or -2
elseif lock ~= token then
  return ARGV[4] == '1' and 0 or -6
end
call('DEL', key .. ':lock')
call('SREM', P .. 'stalled', id)
if call('LREM', P .. 'active', -1, id) == 0 then
  return -3
end
call('HINCRBY', key, 'ats', -1)
if ARGV[5] ~= '' then
  call('HSET', key, 'qvTenant', ARGV[5])
end
local priority = tonumber(call('HGET', key, 'priority')) or 0
if priority > 0 then
  call('ZADD', P .. 'prioritized', priority * 4294967296, id)
else
  call('RPUSH', wait_list(), id)
end
wake()
emit('waiting', 'jobId', id, 'prev', 'active')
return 0

-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P, id, name, data, opts, timestamp, again. Answers 1 added, 0 there is one already.
local id = ARGV[2]
local key = P .. id
if call('EXISTS', key) == 1 then
  if ARGV[7] == '1' and call('HGET', key, 'data') == ARGV[4] then
    return 1 -- the first try worked, its reply was lost
  end
  emit('duplicated', 'jobId', id)
  return 0
end
call('INCR', P .. 'id')
call('HSET', key, 'name', ARGV[3], 'data', ARGV[4], 'opts', ARGV[5], 'timestamp', ARGV[6], 'delay', 0, 'priority', 0)
emit('added', 'jobId', id, 'name', ARGV[3])
call('LPUSH', wait_list(), id)
wake()
emit('waiting', 'jobId', id)
return 1

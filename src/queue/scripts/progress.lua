-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P, id, token, JSON text.
local key = P .. ARGV[2]
if call('GET', key .. ':lock') ~= ARGV[3] or call('EXISTS', key) == 0 then
  return 0
end
call('HSET', key, 'progress', ARGV[4])
emit('progress', 'jobId', ARGV[2], 'data', ARGV[4])
return 1

-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P, id. Answers 1 removed, 0 no such job, -1 locked by a worker.
local id = ARGV[2]
local key = P .. id
if call('EXISTS', key .. ':lock') == 1 then
  return -1
end
if call('EXISTS', key) == 0 then
  return 0
end
local prev = 'unknown'
for _, list in ipairs({ 'wait', 'paused', 'active' }) do
  if call('LREM', P .. list, 0, id) > 0 then
    prev = list
  end
end
for _, set in ipairs({ 'prioritized', 'delayed', 'completed', 'failed', 'waiting-children' }) do
  if call('ZREM', P .. set, id) > 0 then
    prev = set
  end
end
remove_job(id)
emit('removed', 'jobId', id, 'prev', prev)
return 1

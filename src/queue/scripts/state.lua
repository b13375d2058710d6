-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P, id, longest text. Answers { state, text or nil, its bytes }; state: 0 unknown, 1
-- waiting, 2 active, 3 completed, 4 failed.
local id = ARGV[2]
local key = P .. id
local function ended(state, field)
  local bytes = call('HSTRLEN', key, field)
  return { state, bytes <= tonumber(ARGV[3]) and call('HGET', key, field), bytes }
end
if call('EXISTS', key) == 0 then
  return { 0, false, 0 }
elseif call('ZSCORE', P .. 'completed', id) then
  return ended(3, 'returnvalue')
elseif call('ZSCORE', P .. 'failed', id) then
  return ended(4, 'failedReason')
elseif call('EXISTS', key .. ':lock') == 1 then
  return { 2, false, 0 }
end
return { 1, false, 0 }

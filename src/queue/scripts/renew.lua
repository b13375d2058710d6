#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P, lock_ms, start of the cancel keys, then id and token of each job.
-- Answers for each: 0 not our lock any more, 1 renewed, 2 renewed and a cancel key is there.
-- Frees nothing and needs no memory, so a full server does not cost us the locks.
local out = {}
for i = 4, #ARGV, 2 do
  local id, token = ARGV[i], ARGV[i + 1]
  local key = P .. id .. ':lock'
  if call('GET', key) == token then
    call('PEXPIRE', key, ARGV[2])
    call('SREM', P .. 'stalled', id)
    out[#out + 1] = 1 + call('EXISTS', ARGV[3] .. id)
  else
    out[#out + 1] = 0
  end
end
return out

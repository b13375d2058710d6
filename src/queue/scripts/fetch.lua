-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P, token, lock_ms, now, worker, data_max, again (1 or 0), order, pass
return take(ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), ARGV[7] == '1', ARGV[8], ARGV[9])

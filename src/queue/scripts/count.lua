-- SPDX-License-Identifier: Apache-2.0
-- ARGV: P. Jobs that wait in any way.
return call('LLEN', P .. 'wait') + call('LLEN', P .. 'paused') + call('ZCARD', P .. 'prioritized') +
  call('ZCARD', P .. 'delayed')

-- The heartbeat: every instance reports once a second that it is there.
--
-- KEYS[1]  a sorted set: name of an instance, and when it was last heard of
-- ARGV     name of this one
--          microseconds of silence after which an instance is gone; 0: this one leaves
-- Returns  how many are there

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local silence = tonumber(ARGV[2])
if silence == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return {redis.call('ZCARD', KEYS[1])}
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - silence))
-- Heard of in the future: before the clock was set back. An instance that is alive reports again.
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now + silence), '+inf')
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(silence / 1000)))
return {redis.call('ZCARD', KEYS[1])}

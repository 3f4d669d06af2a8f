-- Claim an idempotency key, or say why not: the rules of policy/idempotency/record.py in one step.
--
-- KEYS[1]  the record, a hash:
--            v        version of the record
--            state    in_flight, done, unstored or held
--            owner    token of the request that has it, or had it last
--            print    fingerprint of the request
--            route    name of the route
--            created  when it was claimed, in microseconds of this clock
--            lease    until when its owner counts as alive, the same
--            waits    there if a request was told that the key is busy
--            caller   whose share of the space it takes
--            result   with done
-- KEYS[2]  what the owner that was waited for has left behind
-- ARGV     token; fingerprint; name of the route; microseconds of the lease; milliseconds for
--          which the record is kept, the lease included; 1: a key of a silent owner is taken
--          over; 1: look at KEYS[2]; bytes of the largest result that is returned here; whose
--          share of the space it takes; prefix of the sets of callers; name of the record;
--          records in flight or held that one caller may have
-- Returns  the answer; then, with busy, the owner and the microseconds that its lease has left;
--          with done and left, the result, unless it is larger than that: it is fetched apart, so
--          that no claim waits behind it. Or 'bad': this is no record that we could read.

if ARGV[7] == '1' then
  local size = redis.pcall('STRLEN', KEYS[2])
  if type(size) == 'table' then return {'bad'} end
  if size > tonumber(ARGV[8]) then return {'left'} end
  if size > 0 then return {'left', redis.call('GET', KEYS[2])} end
end

local record = redis.pcall('HMGET', KEYS[1], 'v', 'state', 'owner', 'print', 'lease')
if record.err then return {'bad'} end
local version, state, owner, print, lease = unpack(record)

if redis.call('EXISTS', KEYS[1]) == 1 then
  if version ~= '1' or not owner or not print then return {'bad'} end
  if print ~= ARGV[2] then return {'mismatch'} end
  if state == 'done' then
    if redis.call('HEXISTS', KEYS[1], 'result') == 0 then return {'bad'} end
    if redis.call('HSTRLEN', KEYS[1], 'result') > tonumber(ARGV[8]) then return {'done'} end
    return {'done', redis.call('HGET', KEYS[1], 'result')}
  end
  if state == 'unstored' or state == 'held' then return {state} end
  if state ~= 'in_flight' or not string.find(lease or '', '^%d+$') then return {'bad'} end
  local clock = redis.call('TIME')
  local left = lease - (clock[1] * 1000000 + clock[2])
  if left > 0 then
    -- Only an owner that has a rival announces the end.
    redis.call('HSET', KEYS[1], 'waits', 1)
    return {'busy', owner, left}
  end
  if ARGV[6] ~= '1' then return {'held'} end
end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- The set of a caller: its records that are in flight or held, by when they expire.
local open = ARGV[10] .. ARGV[9]
redis.call('ZREMRANGEBYSCORE', open, '-inf', string.format('%.0f', now))
if redis.call('ZCARD', open) >= tonumber(ARGV[12])
  and not redis.call('ZSCORE', open, ARGV[11]) then
  return {'full'}
end
local before = redis.call('HGET', KEYS[1], 'caller')
if before and before ~= ARGV[9] then redis.call('ZREM', ARGV[10] .. before, ARGV[11]) end
redis.call('ZADD', open, string.format('%.0f', now + ARGV[5] * 1000), ARGV[11])
if redis.call('PTTL', open) < tonumber(ARGV[5]) then redis.call('PEXPIRE', open, ARGV[5]) end
-- Over what is there, if anything: should there be no memory for it, the old record stands.
redis.call('HSET', KEYS[1], 'v', 1, 'state', 'in_flight', 'owner', ARGV[1], 'print', ARGV[2],
  'route', ARGV[3], 'created', string.format('%.0f', now),
  'lease', string.format('%.0f', now + ARGV[4]), 'caller', ARGV[9])
redis.call('HDEL', KEYS[1], 'waits', 'result')
-- Not the lease alone: else a crash would make the key look as if it had never been used.
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return {'new'}

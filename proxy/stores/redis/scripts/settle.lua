-- Settle a key with the outcome of its owner, if the key is still its own.
--
-- KEYS[1]  the record (see claim.lua)
-- KEYS[2]  where it leaves its outcome behind for the waiters
-- KEYS[3]  how many bytes were left behind of late
-- ARGV     token; what becomes of the key: done, unstored, held, or nothing if it is free again;
--          milliseconds for which that is kept; the result; milliseconds for which the result
--          is left behind if a request waits for it (0: it is not); channel and word by which
--          waiters are notified; bytes that all instances may leave behind within that time;
--          1: change nothing if a request waits; whose share of the space it takes from now on,
--          or nothing: the same as so far; prefix of the sets of callers
-- Returns  1, 0 if the key is not its own any more, 2 if nothing was changed because a
--          request waits, or 'bad'

local record = redis.pcall('HMGET', KEYS[1], 'v', 'state', 'owner', 'waits', 'caller')
if record.err then return {'bad'} end
local version, state, owner, waits, caller = unpack(record)
if redis.call('EXISTS', KEYS[1]) == 0 then return {0} end
if version ~= '1' or not state or not owner then return {'bad'} end
if state ~= 'in_flight' or owner ~= ARGV[1] then return {0} end

if waits and ARGV[9] == '1' then return {2} end

-- What needs memory comes first: if there is none, nothing has changed.
if waits and ARGV[5] ~= '0' then
  local used = tonumber(redis.call('GET', KEYS[3]) or '0') + #ARGV[4]
  if used <= tonumber(ARGV[8]) then
    redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
    if used == #ARGV[4] then
      redis.call('SET', KEYS[3], used, 'PX', ARGV[5])
    else
      redis.call('SET', KEYS[3], used, 'KEEPTTL')
    end
  end
end
local name = ARGV[7]
if caller and ARGV[2] ~= 'held' then
  redis.call('ZREM', ARGV[11] .. caller, name)
end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  if ARGV[2] == 'done' then
    redis.call('HSET', KEYS[1], 'state', 'done', 'result', ARGV[4])
  else
    redis.call('HSET', KEYS[1], 'state', ARGV[2])
  end
  if ARGV[10] ~= '' then redis.call('HSET', KEYS[1], 'caller', ARGV[10]) end
  redis.call('HDEL', KEYS[1], 'waits')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
-- An owner that may not announce it has ended it nevertheless.
if waits then redis.pcall('PUBLISH', ARGV[6], ARGV[7]) end
return {1}

-- End what an owner has begun, if the key is still its own.
--
-- KEYS[1]  the record (see claim.lua)
-- KEYS[2]  where it leaves its outcome behind for those who waited
-- ARGV     token; what becomes of the key: done, unstored, held, or nothing if it is free again;
--          milliseconds for which that is kept; the result; milliseconds for which the result
--          is left behind (0: it is not); channel and word by which those who wait are told
-- Returns  1, 0 if the key is not its own any more, or 'bad'

local record = redis.pcall('HMGET', KEYS[1], 'v', 'state', 'owner', 'waits')
if record.err then return {'bad'} end
local version, state, owner, waits = unpack(record)
if redis.call('EXISTS', KEYS[1]) == 0 then return {0} end
if version ~= '1' or not state or not owner then return {'bad'} end
if state ~= 'in_flight' or owner ~= ARGV[1] then return {0} end

-- What needs memory comes first: if there is none, nothing has changed.
if ARGV[5] ~= '0' then redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5]) end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  if ARGV[2] == 'done' then
    redis.call('HSET', KEYS[1], 'state', 'done', 'result', ARGV[4])
  else
    redis.call('HSET', KEYS[1], 'state', ARGV[2])
  end
  redis.call('HDEL', KEYS[1], 'waits')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
-- Whoever may not announce it has ended it nevertheless.
if waits then redis.pcall('PUBLISH', ARGV[6], ARGV[7]) end
return {1}

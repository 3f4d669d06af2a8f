-- Renew the lease of an owner that is still alive.
--
-- KEYS[1]  the record (see claim.lua)
-- ARGV     token; microseconds of the lease from now on; milliseconds for which the record is
--          kept from now on, should its owner not renew again
-- Returns  1, 0 if the key is not its own any more, or 'bad'

local record = redis.pcall('HMGET', KEYS[1], 'v', 'state', 'owner')
if record.err then return {'bad'} end
local version, state, owner = unpack(record)
if redis.call('EXISTS', KEYS[1]) == 0 then return {0} end
if version ~= '1' or not state or not owner then return {'bad'} end
if state ~= 'in_flight' or owner ~= ARGV[1] then return {0} end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
redis.call('HSET', KEYS[1], 'lease', string.format('%.0f', now + ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1}

-- Take a key from the owner that has it: how far that one got is unknown, so the key is held.
--
-- KEYS[1]  the record (see claim.lua)
-- ARGV     channel and word by which waiters are notified
-- Returns  1, 0 if no owner that counts as alive has it, or 'bad'

local record = redis.pcall('HMGET', KEYS[1], 'v', 'state', 'lease', 'waits')
if record.err then return {'bad'} end
local version, state, lease, waits = unpack(record)
if redis.call('EXISTS', KEYS[1]) == 0 then return {0} end
if version ~= '1' or not state or not string.find(lease or '', '^%d+$') then return {'bad'} end

local clock = redis.call('TIME')
if state ~= 'in_flight' or tonumber(lease) <= clock[1] * 1000000 + clock[2] then return {0} end
redis.call('HSET', KEYS[1], 'state', 'held')
redis.call('HDEL', KEYS[1], 'waits')
if waits then redis.pcall('PUBLISH', ARGV[1], ARGV[2]) end
return {1}

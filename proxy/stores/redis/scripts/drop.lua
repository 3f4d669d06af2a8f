-- Forget a key, unless an owner that is alive has it.
--
-- KEYS[1]  the record (see claim.lua)
-- ARGV     channel and word by which waiters are notified; prefix of the sets of callers
-- Returns  1, 0 if there is none or an owner that is alive has it, or 'bad'

local record = redis.pcall('HMGET', KEYS[1], 'v', 'state', 'lease', 'waits', 'caller')
if record.err then return {'bad'} end
local version, state, lease, waits, caller = unpack(record)
if redis.call('EXISTS', KEYS[1]) == 0 then return {0} end
if version ~= '1' or not state or not string.find(lease or '', '^%d+$') then return {'bad'} end

local clock = redis.call('TIME')
if state == 'in_flight' and tonumber(lease) > clock[1] * 1000000 + clock[2] then return {0} end
redis.call('DEL', KEYS[1])
if caller then redis.call('ZREM', ARGV[3] .. caller, ARGV[2]) end
if waits then redis.pcall('PUBLISH', ARGV[1], ARGV[2]) end
return {1}

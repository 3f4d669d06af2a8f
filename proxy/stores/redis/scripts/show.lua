-- What is known of a key, for a person.
--
-- KEYS[1]  the record (see claim.lua)
-- Returns  nothing if there is none; else its state, the name of the route, microseconds since
--          the epoch when it was claimed and when it expires, microseconds that the lease has
--          left, and bytes of the result. Or 'bad'.

local record = redis.pcall('HMGET', KEYS[1], 'v', 'state', 'route', 'created', 'lease')
if record.err then return {'bad'} end
local version, state, route, created, lease = unpack(record)
local keeps = redis.call('PTTL', KEYS[1])
if keeps == -2 then return {} end
if version ~= '1' or not state or not route or keeps < 0
  or not string.find(created or '', '^%d+$') or not string.find(lease or '', '^%d+$') then
  return {'bad'}
end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local left = 0
if state == 'in_flight' then
  left = math.max(lease - now, 0)
  if left == 0 then state = 'held' end -- its owner's lease has lapsed
end
local size = redis.call('HSTRLEN', KEYS[1], 'result')
return {state, route, tonumber(created), now + keeps * 1000, left, size}

-- What is known of some keys, for a person.
--
-- KEYS     the records (see claim.lua)
-- Returns  for each of them nothing if there is none; else its state, the name of the route,
--          microseconds since the epoch when it was claimed and when it expires, microseconds that
--          the lease has left, and bytes of the result. Or 'bad'.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function show(key)
  local record = redis.pcall('HMGET', key, 'v', 'state', 'route', 'created', 'lease')
  if record.err then return {'bad'} end
  local version, state, route, created, lease = unpack(record)
  local keeps = redis.call('PTTL', key)
  if keeps == -2 then return {} end
  if version ~= '1' or not state or not route or keeps < 0
    or not string.find(created or '', '^%d+$') or not string.find(lease or '', '^%d+$') then
    return {'bad'}
  end
  local left = 0
  if state == 'in_flight' then
    left = math.max(lease - now, 0)
    if left == 0 then state = 'held' end -- its owner's lease has lapsed
  end
  local size = redis.call('HSTRLEN', key, 'result')
  return {state, route, tonumber(created), now + keeps * 1000, left, size}
end

local shown = {}
for number, key in ipairs(KEYS) do shown[number] = show(key) end
return shown

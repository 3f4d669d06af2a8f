-- The concurrency slots of one bucket, which all instances share.
--
-- Every instance reports what it has, again and again, in whole numbers and never in steps: a
-- report that is lost or comes twice does no harm, and an instance that stops is forgotten.
--
-- KEYS[1]  the bucket: a hash. Field "at:NAME" is what the instance NAME has:
--          "granted wanted short_since until".
-- ARGV     name of the instance
--          how many slots it has in use, or may take before it gets our answer
--          how many it could use
--          how many there are in all
--          microseconds until its slots are free again unless it reports
--          microseconds for which it may keep a slot that another instance waits for as well
-- Returns  how many it may use from now on. If it has more in use, it takes no other
--          until that many are over.
--
-- Shares are max-min fair: an instance that wants less than an equal share gets what it wants,
-- the others get equal shares of the rest. What is left over because the rest cannot be shared
-- evenly goes round: the instance that has waited longest comes first.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local mine = 'at:' .. ARGV[1]
local kept, want, limit = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local lease, rotation = tonumber(ARGV[5]), tonumber(ARGV[6])

local stored = redis.pcall('HGETALL', KEYS[1])
if stored.err then -- not a hash: no instance has written that
  redis.call('DEL', KEYS[1])
  stored = {}
end

local others, demands, taken = {}, {want}, 0
local granted, short_since = 0, 0
for at = 1, #stored, 2 do
  local field = stored[at]
  if string.sub(field, 1, 3) == 'at:' then
    local has, wants, since, lapses =
      string.match(stored[at + 1], '^(%d+) (%d+) (%d+) (%d+)$')
    lapses = tonumber(lapses or 0)
    -- One that lapses later than any may has reported before the clock was set back.
    if lapses <= now or lapses > now + lease then
      redis.call('HDEL', KEYS[1], field)
    elseif field == mine then
      granted, short_since = tonumber(has), tonumber(since)
    else
      local other = {granted = tonumber(has), wants = tonumber(wants), since = tonumber(since)}
      others[#others + 1] = other
      demands[#demands + 1] = other.wants
      taken = taken + other.granted
    end
  end
end

-- Fill the smallest demands first; what is left is shared by the others.
table.sort(demands)
local rest, level, left_over = limit, limit, 0
for n = 1, #demands do
  local sharing = #demands - n + 1
  local share = math.floor(rest / sharing)
  if demands[n] > share then
    level, left_over = share, rest - share * sharing
    break
  end
  rest = rest - demands[n]
end

local may = math.min(want, level)
if want > level and left_over > 0 then -- is one of those ours now?
  local is_ours = true
  for _, other in ipairs(others) do
    if other.since > 0 and other.granted < math.min(other.wants, level + 1) then
      if granted > level then
        is_ours = is_ours and now - other.since < rotation
      elseif short_since == 0 or other.since < short_since then
        is_ours = false
      end
    end
  end
  if is_ours then
    may = level + 1
  end
end
may = math.max(math.min(may, limit - taken), 0)

if may >= want then
  short_since = 0
elseif short_since == 0 or may < granted then
  short_since = now
end
if want > 0 or kept > 0 then
  redis.call('HSET', KEYS[1], mine, string.format('%.0f %.0f %.0f %.0f',
    math.max(may, kept), want, short_since, now + lease))
  local lives = math.ceil(lease / 1000)
  if redis.call('PTTL', KEYS[1]) < lives then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lives))
  end
else
  redis.call('HDEL', KEYS[1], mine)
end
return {may}

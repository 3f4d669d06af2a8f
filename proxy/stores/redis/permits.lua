-- The permits of one bucket, by GCRA on the server's own clock; and its pause.
--
-- KEYS[1]  the bucket: a hash. Field N has the state of rate N, "pause" the end of a pause,
--          "short" who got less than it wanted: the last one and another one, and when.
-- ARGV     how many permits are wanted
--          how long the bucket shall be closed from now on (0: not at all)
--          how long a pause may last
--          channel on which a pause is announced, name of this instance, name of the bucket
--          then for each rate: count, period, burst
-- Returns  permits given, time until there is another one, time until the pause is over,
--          1 if another instance got less than it wanted of late, else 0
--
-- Times are microseconds. A rate's T, period/count, is seldom a whole number of them. So
-- what is used up is counted in parts, of which `count` make a microsecond: one permit is
-- `period` parts, a whole number. State is "TAT rest count period burst", rest in parts; since
-- the epoch there have been too many parts for a double, so only distances from now are
-- counted so. fmod is exact where a quotient may be rounded up to the next whole number.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local want, close_for, longest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local channel, me, bucket = ARGV[4], ARGV[5], ARGV[6]
local rates = (#ARGV - 6) / 3
local LATELY = 100000

local fields, limits = {'pause', 'short'}, {}
for n = 1, rates do
  fields[n + 2] = string.format('%d', n)
  limits[n] = {tonumber(ARGV[4 + 3 * n]), tonumber(ARGV[5 + 3 * n]), tonumber(ARGV[6 + 3 * n])}
end
local stored = redis.pcall('HMGET', KEYS[1], unpack(fields))
if stored.err then -- not a hash: nobody of ours has written that
  redis.call('DEL', KEYS[1])
  stored = {}
end

-- The pause. One that ends later than any may was set before the clock was set back.
local is_new = close_for > 0
local pause = tonumber(stored[1] or nil) or 0
local paused_for = math.max(math.min(pause - now, longest), 0)
local has_changed = paused_for > 0 and pause - now > longest
if is_new then
  paused_for = math.max(paused_for, math.min(close_for, longest))
  has_changed = true
end

local function permits_in(parts, period)
  return (parts - math.fmod(parts, period)) / period
end

-- What is used up of each rate, and how many permits all of them have left.
local rate_of, used = {}, {}
local given = paused_for > 0 and 0 or want
for n = 1, rates do
  local count, period, burst = unpack(limits[n])
  local rate = string.format('%.0f %.0f %.0f', count, period, burst)
  local tat, rest, stored_rate = string.match(stored[n + 2] or '', '^(%d+) (%d+) (%d+ [1-9]%d* %d+)$')
  local parts, is_other = 0, false
  if stored_rate == rate then
    parts = math.max((tat - now) * count + rest, 0)
  elseif stored_rate then -- the limit was changed: what was left is left, but no more
    local was_count, was_period, was_burst = string.match(stored_rate, '(%d+) (%d+) (%d+)')
    local spare = was_burst * was_period - math.max((tat - now) * was_count + rest, 0)
    parts = math.max(burst - permits_in(math.max(spare, 0), was_period), 0) * period
    is_other, has_changed = true, true
  end
  local most = paused_for * count + burst * period
  if parts > most then -- beyond a whole burst: the clock was set back
    parts = most
    has_changed = true
  end
  if is_new or (is_other and paused_for > 0) then -- it opens with one permit, without a burst
    parts = math.max(parts, most - period)
  end
  rate_of[n], used[n] = rate, parts
  given = math.min(given, permits_in(math.max(burst * period - parts, 0), period))
end

local next_in, full_in = paused_for, paused_for
for n = 1, rates do
  local count, period, burst = unpack(limits[n])
  local parts = used[n] + given * period
  local rest = math.fmod(parts, count)
  local whole = (parts - rest) / count
  full_in = math.max(full_in, whole + 1)
  next_in = math.max(next_in, math.ceil((parts + period - burst * period) / count))
  if given > 0 or has_changed then
    redis.call('HSET', KEYS[1], fields[n + 2],
      string.format('%.0f %.0f ', now + whole, rest) .. rate_of[n])
  end
end
if has_changed then
  redis.call('HSET', KEYS[1], 'pause', string.format('%.0f', now + paused_for))
end

-- Who else goes short. Of two names one is never our own.
local last, last_at, rival, rival_at = string.match(stored[2] or '', '^(%S+) (%d+) (%S+) (%d+)$')
if last and last ~= me then
  rival, rival_at = last, last_at
end
local has_rival = rival and rival ~= me and math.abs(now - rival_at) < LATELY
if given < want then
  redis.call('HSET', KEYS[1], 'short', string.format('%s %.0f %s %.0f',
    me, now, rival or me, rival_at or 0))
end

if given > 0 or has_changed then
  -- Never shorter than the time to full; and the places in the same hash may need longer.
  local lives = math.ceil(full_in / 1000) + 1000
  if redis.call('PTTL', KEYS[1]) < lives then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lives))
  end
end
if is_new then
  redis.call('PUBLISH', channel, string.format('%.0f %s %s', paused_for, me, bucket))
end
return {given, next_in, paused_for, has_rival and 1 or 0}

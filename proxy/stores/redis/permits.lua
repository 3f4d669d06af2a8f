-- The permits of one bucket, by GCRA on the server's own clock; and its pause.
--
-- KEYS[1]  the bucket: a hash. Field N has the state of rate N, "pause" the end of a pause.
-- ARGV     how many permits are wanted
--          how long the bucket shall be closed from now on (0: not at all)
--          how long a pause may last
--          channel on which a pause is announced, and the words that go with it
--          then for each rate: count, period, burst
-- Returns  permits given; time until there is another one; time until the pause is over;
--          then for each rate the time until all of it is left.
--
-- Times are microseconds. A rate's T, period/count, is seldom a whole number of them. So
-- what is used up is counted in parts, of which `count` make a microsecond: one permit is
-- `period` parts, a whole number. State is "TAT rest count", rest in parts; since the epoch
-- there have been too many parts for a double, so only distances from now are counted so.
-- fmod is exact where a quotient may be rounded up to the next whole number.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local want, close_for, longest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local rates = (#ARGV - 5) / 3

local fields = {'pause'}
for n = 1, rates do
  fields[n + 1] = string.format('%d', n)
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

-- What is used up of each rate, and how many permits all of them have left.
local used = {}
local given = paused_for > 0 and 0 or want
for n = 1, rates do
  local count, period, burst = tonumber(ARGV[3 + 3 * n]), tonumber(ARGV[4 + 3 * n]), tonumber(ARGV[5 + 3 * n])
  local tat, rest, of = string.match(stored[n + 1] or '', '^(%d+) (%d+) (%d+)$')
  local parts = 0
  if tat then
    rest = tonumber(rest)
    if tonumber(of) ~= count and rest > 0 then -- the limit was changed
      rest = count
    end
    parts = math.max((tat - now) * count + rest, 0)
  end
  -- Beyond a whole burst: the clock was set back, or the limit was changed.
  local most = paused_for * count + burst * period
  if parts > most then
    parts = most
    has_changed = true
  end
  if is_new then -- it opens with one permit, not with a burst
    parts = math.max(parts, most - period)
  end
  used[n] = parts
  local spare = math.max(burst * period - parts, 0)
  given = math.min(given, (spare - math.fmod(spare, period)) / period)
end

local next_in = paused_for
local full_in = paused_for
local until_full = {}
for n = 1, rates do
  local count, period, burst = tonumber(ARGV[3 + 3 * n]), tonumber(ARGV[4 + 3 * n]), tonumber(ARGV[5 + 3 * n])
  local parts = used[n] + given * period
  local rest = math.fmod(parts, count)
  local whole = (parts - rest) / count
  until_full[n] = whole + (rest > 0 and 1 or 0)
  full_in = math.max(full_in, until_full[n])
  next_in = math.max(next_in, math.ceil((parts + period - burst * period) / count))
  if given > 0 or has_changed then
    redis.call('HSET', KEYS[1], fields[n + 1],
      string.format('%.0f %.0f %.0f', now + whole, rest, count))
  end
end
if has_changed then
  redis.call('HSET', KEYS[1], 'pause', string.format('%.0f', now + paused_for))
end
if given > 0 or has_changed then
  -- Never shorter than the time to full; and the places in the same hash may need longer.
  local lives = math.ceil(full_in / 1000) + 1000
  if redis.call('PTTL', KEYS[1]) < lives then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lives))
  end
end
if is_new then
  redis.call('PUBLISH', ARGV[4], string.format('%.0f ', paused_for) .. ARGV[5])
end
return {given, next_in, paused_for, unpack(until_full)}

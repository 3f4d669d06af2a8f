-- The permits of one bucket, by GCRA on the server's own clock; and its pause.
--
-- KEYS[1]  the bucket: a hash. Field N has the state of rate N, "pause" the end of a pause,
--          "short" who got less than it wanted: the last one and another one, and when.
-- ARGV     how many permits are wanted
--          how long the bucket shall be closed from now on (0: not at all)
--          how long a pause may last
--          by how much a permit may be given before its time
--          channel on which a pause is announced, name of this instance, name of the bucket
--          how many calls were sent without us, for how long we were not asked, and how long ago the
--          last of them was sent
--          then for each rate: calls, the time that they take, burst, time that one may be early
-- Returns  permits given, time until there is another one, time until the pause is over,
--          1 if another instance got less than it wanted of late, else 0;
--          then for each rate the time until the first of them may be used (below 0: at once)
--
-- Times are microseconds. The time from one call to the next, width/count, is seldom a whole
-- number of them. So what is used up is counted in parts, of which `count` make a microsecond: one
-- permit is `width` parts, a whole number. A state is "TAT rest last" and its rule, "count width
-- burst early": when everything is free again, with a rest in parts, and when it was last changed.
-- Since the epoch there have been too many parts for a double, so only distances are counted so.
-- fmod is exact where a quotient may be rounded up to the next whole number.
--
-- After a rule there may be another state, with the rule that was in force before. It goes on
-- counting, so that instances which do not know of the new rule yet, or of another one, keep
-- to theirs with all that was sent.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local want, close_for, longest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local ahead = tonumber(ARGV[4])
local channel, me, bucket = ARGV[5], ARGV[6], ARGV[7]
local sent_alone, alone_for, last_ago = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local rates = (#ARGV - 10) / 4
local lately = 100000
local LONG_AGO = -1e15
local has_changed = false

local function rule_of(count, width, burst, early)
  local rule = {count = tonumber(count), width = tonumber(width)}
  rule.name = string.format('%s %s %s %s', count, width, burst, early)
  -- By how many parts the state may be ahead for a call to pass, and after one has.
  rule.slack = (burst - 1) * width + early * count
  rule.capacity = rule.slack + width
  return rule
end

-- Whether one lets calls out further apart than the other.
local function is_slower(rule, other)
  return rule.width * other.count > other.width * rule.count
end

local STATE = '^(%d+) (%d+) (%d+) ([1-9]%d*) ([1-9]%d*) ([1-9]%d*) (%d+)(.*)$'

-- What is stored: parts used up (below 0: free for so long already), when it was last changed,
-- the rule, and what is stored behind it.
local function read(text)
  local tat, rest, last, count, width, burst, early, more = string.match(text or '', STATE)
  if not tat then
    return nil
  end
  local state = {rule = rule_of(count, width, burst, early), last = tonumber(last), more = more}
  state.parts = (tat - now) * state.rule.count + rest
  if state.last > now then -- the clock was set back: no more is used than all of it
    state.parts = math.min(state.parts, state.rule.capacity)
    state.last = now
    has_changed = true
  end
  return state
end

local function write(state)
  local rest = math.fmod(state.parts, state.rule.count)
  if rest < 0 then
    rest = rest + state.rule.count
  end
  local tat = now + (state.parts - rest) / state.rule.count
  return string.format('%.0f %.0f %.0f %s', tat, rest, state.last, state.rule.name)
end

-- The parts that are used up by another rule, counted from the last call sent. What was used stays
-- used; for a slower rule it need not be more than all that it allows.
local function handed_over(state, rule)
  local old = state.rule
  local since = now - state.last
  local used = math.max(state.parts + since * old.count, 0) / old.width
  if is_slower(rule, old) then
    local capacity = rule.capacity / rule.width
    local spare = math.min(old.capacity / old.width - used, math.max(capacity - used, 0))
    used = math.max(capacity - spare, math.min(used, 1))
  end
  return math.ceil(used * rule.width) - since * rule.count
end

local fields, rules = {'pause', 'short'}, {}
for n = 1, rates do
  local at = 7 + 4 * n
  fields[n + 2] = string.format('%d', n)
  rules[n] = rule_of(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
  -- An instance that is short of a slow rate asks seldom, and is a rival all the same.
  lately = math.max(lately, 3 * rules[n].width / rules[n].count)
end
local stored = redis.pcall('HMGET', KEYS[1], unpack(fields))
if stored.err then -- not a hash: no instance has written that
  redis.call('DEL', KEYS[1])
  stored = {}
end

-- The pause. One that ends later than any may was set before the clock was set back.
local is_new = close_for > 0
local pause = tonumber(stored[1] or nil) or 0
local paused_for = math.max(math.min(pause - now, longest), 0)
has_changed = paused_for > 0 and pause - now > longest
if is_new then
  paused_for = math.max(paused_for, math.min(close_for, longest))
  has_changed = true
end

-- What is used up of each rate, and how many permits all of them have left.
local states = {}
local given = paused_for > 0 and 0 or want
for n = 1, rates do
  local rule = rules[n]
  local latest = read(stored[n + 2])
  local state, former, is_other
  if latest and latest.rule.name == rule.name then
    state, former = latest, read(string.match(latest.more, '^ (.+)$'))
  elseif latest then -- the limit was changed, or it was changed elsewhere
    local before = read(string.match(latest.more, '^ (.+)$'))
    state = {rule = rule, last = latest.last, parts = handed_over(latest, rule)}
    if before and before.parts > 0 then
      local is_ours = before.rule.name == rule.name
      local parts = is_ours and before.parts or handed_over(before, rule)
      state.parts = math.max(state.parts, parts)
    end
    former, is_other, has_changed = latest, true, true
  else
    state = {rule = rule, last = now, parts = LONG_AGO}
  end
  if former and former.parts <= 0 then
    former = nil
  end
  local used = math.max(state.parts, 0)
  if sent_alone > 0 then
    -- They went out one by one: what is used now beyond the rate is no more than one call.
    local parts = math.max(state.parts, -alone_for * rule.count) + sent_alone * rule.width
    state.parts = math.min(parts, math.max(used, rule.slack) + rule.width)
    -- Nor is it less than the last one: it may have gone out later than it was due.
    state.parts = math.max(state.parts, rule.width - last_ago * rule.count)
    state.last = now
    has_changed = true
    used = math.max(state.parts, 0)
  end
  if is_new or (paused_for > 0 and is_other) then -- it opens with one permit, without a burst
    used = math.max(used, paused_for * rule.count + rule.slack)
    state.parts = used
  end
  states[n] = {state = state, former = former, used = used}
  local left = ahead * rule.count + rule.slack - used
  given = left < 0 and 0 or math.min(given, (left - math.fmod(left, rule.width)) / rule.width + 1)
end

local answer = {given, 0, paused_for, 0}
local next_in, full_in = paused_for, paused_for
for n = 1, rates do
  local state, former, used = states[n].state, states[n].former, states[n].used
  local rule = state.rule
  answer[n + 4] = math.ceil((used - rule.slack) / rule.count)
  if given > 0 then
    state.parts = used + given * rule.width
    state.last = now
    if former then
      local old = former.rule
      former.parts = former.parts + given * old.width
      if is_slower(old, rule) then
        former.parts = math.min(former.parts, old.capacity)
      end
      former.last = now
    end
  end
  used = math.max(state.parts, 0)
  next_in = math.max(next_in, math.ceil((used - rule.slack) / rule.count) - ahead)
  full_in = math.max(full_in, math.ceil(used / rule.count))
  if given > 0 or has_changed then
    local text = write(state)
    if former then
      full_in = math.max(full_in, math.ceil(former.parts / former.rule.count))
      text = text .. ' ' .. write(former)
    end
    redis.call('HSET', KEYS[1], fields[n + 2], text)
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
local has_rival = rival and rival ~= me and math.abs(now - rival_at) < lately
if given < want then
  redis.call('HSET', KEYS[1], 'short', string.format('%s %.0f %s %.0f',
    me, now, rival or me, rival_at or 0))
end

if given > 0 or has_changed then
  -- Never shorter than the time to full, nor than it takes all instances to tell what they sent
  -- without us; and the slots in the same hash may need longer.
  local lives = math.ceil(full_in / 1000) + 5000
  if redis.call('PTTL', KEYS[1]) < lives then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lives))
  end
end
if is_new then
  redis.call('PUBLISH', channel, string.format('%.0f %s %s', paused_for, me, bucket))
end
answer[2] = next_in
answer[4] = has_rival and 1 or 0
return answer

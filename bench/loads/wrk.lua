-- For every run: POST a body of as many bytes as the first argument says (0: GET), wait
-- between two requests of a connection for as many milliseconds as the second says, give each
-- request an idempotency key of its own if the third is "keys", say when the load begins, and end
-- with one line of JSON. wrk's own text is made for people: "50%" occurs in it twice.

function init(args)
  local size = tonumber(args[1])
  local pause = tonumber(args[2])
  if pause > 0 then
    -- Half to one and a half of it, so that the connections do not fall into step.
    math.randomseed(os.time())
    function delay() return math.random(math.floor(pause / 2), math.ceil(pause * 3 / 2)) end
  end
  if size > 0 then
    wrk.method = "POST"
    wrk.headers["Content-Type"] = "application/json"
    wrk.body = '"' .. string.rep("x", size - 2) .. '"'
  end
  if args[3] == "keys" then
    local run, number = args[4], 0
    function request()
      number = number + 1
      wrk.headers["Idempotency-Key"] = run .. number
      return wrk.format()
    end
  end
  io.stderr:write("begun\n")
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "failed": %d, "microseconds": %d, "p50": %d, "p99": %d}\n',
    summary.requests,
    errors.connect + errors.read + errors.write + errors.timeout + errors.status,
    summary.duration,
    latency:percentile(50),
    latency:percentile(99)
  ))
end

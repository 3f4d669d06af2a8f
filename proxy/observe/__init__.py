"""What operators see: metrics, the access log, the process's own log, and recent requests.

Three streams, kept apart because three kinds of reader want them:

* ``metrics/``: numbers, for dashboards and alerts. ``families.py`` lists every one of them. A
  route's recorder (``recorders.py``) adds to plain integers (``series.py``); only a scrape turns
  those into text (``exposition.py``). So a request pays for a few additions, and for no text.
  ``aggregate.py`` and ``totals.py`` add up the numbers of several workers. ``history.py`` has
  samples of them, for what was counted in the last minute; ``trouble.py`` says what is wrong, and
  ``status.py`` condenses all of it for a person.
* ``logs/access_log.py``: one JSON line per client request on stdout, for the person
  who asks what became of *that* call. ``logs/line_writer.py`` carries the lines out;
  it may lose some, and counts them, but it never keeps a request waiting. ``notable.py`` decides
  which requests are worth a line, and ``recent.py`` remembers the last of them for ``/attempts``.
* ``logs/process_log.py``: the few sentences that the process says about itself, on stderr.

Nothing that a client chooses becomes a label, and no header, query, body or
credential is ever written down. May import ``core/``, ``policy/`` and ``http/``.
"""

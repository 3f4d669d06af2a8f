"""What operators see: metrics, the access log, and the process's own log.

Three streams, kept apart because three kinds of reader want them:

* ``metrics.py``: numbers, for dashboards and alerts. A route's recorder adds to
  plain integers (``series.py``, all of them in ``collected.py``); only a scrape
  turns those into Prometheus families (``collector.py``) and text
  (``exposition.py``). So a request pays for a few additions, and nobody pays for
  text that nobody reads. ``status.py`` tells the same to a person.
* ``access_log.py``: one JSON line per client request on stdout, for the person
  who asks what became of *that* call. ``line_writer.py`` carries the lines out;
  it may lose some, and counts them, but it never keeps a request waiting.
* ``logs.py``: the few sentences that the process says about itself, on stderr.

Nothing that a client chooses becomes a label, and no header, query, body or
credential is ever written down.
"""

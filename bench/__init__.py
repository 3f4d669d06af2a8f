"""What Holdfast costs, measured beside its peers in one run.

``make bench`` starts :mod:`bench.run`, which goes through the table of :mod:`bench.cases`. Each
case puts some *contenders* (a proxy under a load) through interleaved rounds:

- :mod:`bench.stage` is what stands around the proxies: upstreams, a Redis, certificates;
- :mod:`bench.proxies` starts Holdfast and its peers, each with the same work to do;
- :mod:`bench.loads` puts them under load, and reads their clocks and memory;
- :mod:`bench.figures` makes medians and ratios of that, :mod:`bench.bars` judges them;
- :mod:`bench.results` keeps all of it as JSON, :mod:`bench.report` makes the tables for people,
  and :mod:`bench.publish` what docs/explanation/performance.md and README.md quote.
"""

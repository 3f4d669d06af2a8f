"""Prometheus metrics: series, their recorders, snapshots, aggregation over workers, exposition."""

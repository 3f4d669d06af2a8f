"""The system's numbers about a process: CPU, memory, descriptors. On Linux only."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class ProcessMetrics(Collector):
    """The usual ``process_*`` metrics: of this process, or with values from elsewhere."""

    def __init__(self, values: Callable[[], Mapping[str, float]] | None = None) -> None:
        """*values*, by the names of their samples, replace those of this process."""
        self._own = ProcessCollector(registry=None)
        self._values = values

    def collect(self) -> Iterator[Metric]:
        values = {} if self._values is None else self._values()
        for family in self._own.collect():
            family.samples = [
                sample._replace(value=values.get(sample.name, sample.value))
                for sample in family.samples
            ]
            yield family

    def values(self) -> dict[str, float]:
        """Return the samples of this process, by their names."""
        return {
            sample.name: sample.value for family in self._own.collect() for sample in family.samples
        }

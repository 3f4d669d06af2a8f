"""What promtool says to a real scrape."""

import subprocess

from tests.prometheus.exposed import scrape
from tests.support.tools import tool


async def test_promtool_finds_nothing_wrong_with_our_metrics() -> None:
    promtool = tool("promtool")
    exposed = await scrape()
    assert "holdfast_retry_verdicts_total{" in exposed
    done = subprocess.run(  # noqa: ASYNC221 - nothing else runs
        [promtool, "check", "metrics"], input=exposed, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")

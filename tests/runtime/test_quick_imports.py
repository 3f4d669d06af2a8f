import gc
import os
import subprocess
import sys

import pytest

from proxy.runtime.quick_imports import quick_imports

PROGRAM = """
import gc, os, ssl
before = dict(os.environ), len(ssl.create_default_context().get_ca_certs())
from proxy.runtime.quick_imports import quick_imports
with quick_imports():
    import proxy.runtime.main
from aiohttp import connector
print(len(connector._SSL_CONTEXT_VERIFIED.get_ca_certs()))
print((dict(os.environ), len(ssl.create_default_context().get_ca_certs())) == before)
print(gc.isenabled(), gc.get_freeze_count() > 10_000)
from proxy.runtime.process_setup import settle
settle()
print(gc.isenabled(), gc.get_freeze_count() > 10_000)
"""


def test_a_client_that_is_never_used_reads_no_certificates() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.splitlines() == ["0", "True", "True True", "True True"]


def test_the_environment_is_as_before_even_if_an_import_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/mine.pem")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)

    def import_in_vain() -> None:
        with quick_imports():
            assert os.environ["SSL_CERT_FILE"] == os.environ["SSL_CERT_DIR"] == os.devnull
            assert not gc.isenabled()
            raise ImportError

    with pytest.raises(ImportError):
        import_in_vain()
    gc.unfreeze()
    assert os.environ["SSL_CERT_FILE"] == "/etc/mine.pem"
    assert "SSL_CERT_DIR" not in os.environ
    assert gc.isenabled()

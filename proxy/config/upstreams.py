"""What is wrong with an upstream as a whole, and with certificates wherever they are named."""

import ssl
from pathlib import Path

from proxy.config.faults import Findings
from proxy.config.files import reason_of
from proxy.config.tree import Branch, Leaf
from proxy.policy.settings import USUAL_REFUSALS

_PERHAPS_PERCENT = 10
"""A ratio from here on was written by somebody who thinks in percent."""


class _Encrypted(Exception):
    """A key that asks for a password, which nobody is there to type."""


def check_upstreams(file: Branch, findings: Findings) -> None:
    """URLs differ; TLS settings, refusals and budget make sense."""
    upstreams = file.branch("upstreams")
    for entry in upstreams.entries.values() if upstreams else ():
        if isinstance(entry.node, Branch):
            _check_urls(entry.node, findings)
            _check_tls(entry.node, findings)
            _check_refused(entry.node, findings)
            _check_budget(entry.node, findings)


def refused_by(file: Branch, name: Leaf | None) -> frozenset[int]:
    """The statuses by which the upstream called *name* says that it did nothing."""
    upstreams = file.branch("upstreams")
    upstream = upstreams.branch(name.value) if upstreams and name else None
    is_written = upstream is not None and "refused" in upstream.entries
    return frozenset(upstream.values("refused") if upstream and is_written else USUAL_REFUSALS)


def check_listen_tls(file: Branch, findings: Findings) -> None:
    """The certificates of the listeners can be used."""
    for item in file.items("listen"):
        tls = item.branch("tls") if isinstance(item, Branch) else None
        if tls is not None:
            _check_chain(tls, findings)


def certificate_files(file: Branch) -> list[Path]:
    """Every certificate, key and authority that the file names."""
    upstreams = file.branch("upstreams")
    owners = [
        *file.items("listen"),
        *(entry.node for entry in (upstreams.entries if upstreams else {}).values()),
    ]
    sections = [owner.branch("tls") for owner in owners if isinstance(owner, Branch)]
    leaves = [tls.leaf(key) for tls in sections if tls for key in ("ca", "cert", "key")]
    return [Path(leaf.value) for leaf in leaves if leaf]


def _check_urls(upstream: Branch, findings: Findings) -> None:
    seen = set()
    for item in upstream.items("urls"):
        if isinstance(item, Leaf) and item.value in seen:
            findings.fault(item.spot, item.path, "this URL is already in the list, remove it")
        elif isinstance(item, Leaf):
            seen.add(item.value)


def _check_tls(upstream: Branch, findings: Findings) -> None:
    tls = upstream.branch("tls")
    if tls is None or not tls.entries:
        return
    if upstream.is_whole and all(origin.scheme == "http" for origin in upstream.values("urls")):
        findings.warn(
            upstream.entries["tls"].spot,
            tls.path,
            "no URL of this upstream is https, so this has no effect, write https:// or remove it",
        )
    verify = tls.leaf("verify")
    if verify is not None and not verify.value:
        findings.warn(
            verify.spot,
            verify.path,
            "anyone on the way can pose as this upstream, write ca: FILE to trust its certificate",
        )
    ca, key = tls.leaf("ca"), tls.leaf("key")
    if ca is not None and _is_readable(ca, findings):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca.value)
        except (ssl.SSLError, OSError, ValueError):
            findings.fault(ca.spot, ca.path, "the file holds no certificate, write one in PEM form")
    if key is not None and "cert" not in tls.entries.keys() | tls.broken:
        findings.fault(key.spot, key.path, "a key needs a certificate, write cert: FILE beside it")
    _check_chain(tls, findings)


def _check_refused(upstream: Branch, findings: Findings) -> None:
    """Warn of a list that was probably meant to add to the built-in one."""
    written = upstream.values("refused")
    if not written or not set(written).isdisjoint(USUAL_REFUSALS) or "refused" in upstream.broken:
        return
    lost, added = (", ".join(map(str, statuses)) for statuses in (USUAL_REFUSALS, written))
    findings.warn(
        upstream.entries["refused"].spot,
        f"{upstream.path}.refused",
        f"this list replaces the built-in one, so {lost} no longer mean that nothing was done, "
        f"write refused: [{lost}, {added}] to add {added}",
    )


def _check_budget(upstream: Branch, findings: Findings) -> None:
    """Warn of a budget that allows nothing, or everything."""
    budget = upstream.branch("budget")
    ratio = budget.leaf("ratio") if budget else None
    if budget is None or ratio is None:
        return
    least = budget.leaf("min_per_second")
    if ratio.value == 0 and least is not None and least.value == 0:
        findings.warn(
            upstream.entries["budget"].spot,
            budget.path,
            "this allows no retry at all, write a larger ratio, or budget: false for any number",
        )
    elif ratio.value >= _PERHAPS_PERCENT:
        findings.warn(
            ratio.spot,
            ratio.path,
            f"{ratio.scalar.bare} retries for each request are no limit, write a ratio such as "
            f"0.2, or budget: false if that is meant",
        )


def _check_chain(tls: Branch, findings: Findings) -> None:
    """Whether a certificate can be used with its key, which may be in the same file."""
    cert, key = tls.leaf("cert"), tls.leaf("key")
    readable = [_is_readable(leaf, findings) for leaf in (cert, key) if leaf is not None]
    if cert is None or "key" in tls.broken or not all(readable):
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            cert.value, None if key is None else key.value, password=_no_password
        )
    except _Encrypted:
        leaf = key or cert
        findings.fault(leaf.spot, leaf.path, "the key is encrypted, write a file with a plain key")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH" and key is not None:
            findings.fault(
                key.spot, key.path, "this key does not belong to the certificate, write its own"
            )
        else:
            findings.fault(
                cert.spot,
                cert.path,
                "the certificate and its key cannot be loaded, write both in PEM form",
            )


def _no_password() -> str:
    raise _Encrypted


def _is_readable(leaf: Leaf, findings: Findings) -> bool:
    try:
        with Path(leaf.value).open("rb"):
            return True
    except (OSError, ValueError) as error:
        findings.fault(
            leaf.spot,
            leaf.path,
            f"cannot read {leaf.scalar.bare} ({reason_of(error)}), mount it or correct the path",
        )
        return False

"""What is wrong with the store as a whole."""

from proxy.config.certificates import check_client_tls
from proxy.config.faults import Findings
from proxy.config.kinds.stores import RedisUrl
from proxy.config.tree import Branch


def check_store(file: Branch, findings: Findings) -> None:
    """Credentials are said once and are complete; TLS settings make sense."""
    store = file.branch("store")
    url = store.leaf("url") if store else None
    if store is None or url is None:
        return
    if url.value is not None:  # what memory has no use for waits for the day that it is redis
        _check_credentials(store, url.value, findings)
    tls = store.branch("tls")
    if tls is None or not tls.entries:
        return
    if url.value is not None and not url.value.is_encrypted:
        findings.warn(
            store.entries["tls"].spot,
            tls.path,
            "the URL is not rediss, so this has no effect, write rediss:// or remove it",
        )
    check_client_tls(tls, "this store", findings)


def _check_credentials(store: Branch, url: RedisUrl, findings: Findings) -> None:
    for key, within in (("username", url.username), ("password", url.password)):
        leaf = store.leaf(key)
        if leaf is not None and within is not None:
            findings.fault(leaf.spot, leaf.path, f"the URL has a {key} too, remove one of them")
    if url.password is not None or "password" in store.entries.keys() | store.broken:
        return
    leaf = store.leaf("username") or (store.leaf("url") if url.username else None)
    if leaf is not None:
        findings.fault(
            leaf.spot,
            leaf.path,
            'a user needs a password, write password: "${REDIS_PASSWORD}" in store, or '
            "redis://:PASSWORD@HOST if there is no user",
        )

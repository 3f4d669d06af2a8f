"""Results as bytes: read back as they were, or not at all."""

import pytest
from hypothesis import given, strategies as st

from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import KeptResponse
from proxy.policy.idempotency.stored_response import (
    BadResult,
    NotKept,
    Result,
    StoredFallback,
    _checksum,
    in_hand,
    pack,
    unpack,
)

NAME = "0ecdee3e7d9ed66ea44ebc5f160748ec"
HEAD = b"HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nX-Odd:  caf\xe9 "


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(KeptResponse(201, HEAD, b"done"), id="a response"),
        pytest.param(KeptResponse(201, HEAD, b""), id="without a body"),
        pytest.param(KeptResponse(299, b"HTTP/1.1 299 ", b"\r\n\r\n\x00"), id="of any bytes"),
        pytest.param(Refusal(RefusalReason.TIMEOUT, "Too late."), id="a refusal"),
        pytest.param(
            Refusal(RefusalReason.THROTTLED, "a\nb", wait=7, cause="paused"), id="with a cause"
        ),
        pytest.param(StoredFallback(), id="the fallback"),
        pytest.param(NotKept(), id="nothing"),
    ],
)
def test_read_back(result: Result) -> None:
    assert unpack(NAME, pack(NAME, result)) == result


@given(st.binary(max_size=300), st.lists(st.binary(max_size=20).filter(lambda b: b"\r\n" not in b)))
def test_any_response(body: bytes, fields: list[bytes]) -> None:
    lines = [b"HTTP/1.1 200 OK", *(b"X: " + field for field in fields)]
    result = KeptResponse(200, b"\r\n".join(lines), body)
    assert unpack(NAME, pack(NAME, result)) == result


def test_the_form_stays_the_same_over_versions() -> None:
    packed = pack(NAME, KeptResponse(201, HEAD, b"done"))
    assert packed[:2] == b"1R"
    assert packed[18:] == HEAD + b"\r\n\r\ndone"
    assert packed[2:18].hex() == "906a16d0af6291d545ef1534889ad2bc"
    refusal = pack(NAME, Refusal(RefusalReason.THROTTLED, "Later.", wait=7, cause="paused"))
    assert refusal[:2] == b"1X"
    assert refusal[18:] == b"throttled\n7\npaused\nLater."
    assert refusal[2:18].hex() == "02d447d739dab051efce8a99b7ce2985"
    assert pack(NAME, StoredFallback()) == b"1F" + bytes.fromhex("ae35c0aba4ac9609fdc776c3025ebb06")
    assert pack(NAME, NotKept()) == b"1N" + bytes.fromhex("bb933d83f781bccdabdf04f2f6f8de15")


def test_a_response_in_hand_is_read_back_under_any_name() -> None:
    for body in (b"done", b"", b"\r\n\r\n"):
        held = in_hand(HEAD, body)
        assert unpack(NAME, held) == unpack("", held) == KeptResponse(201, HEAD, body)


@given(st.binary(max_size=80))
def test_no_bytes_are_taken_for_a_result(data: bytes) -> None:
    with pytest.raises(BadResult):
        unpack(NAME, data)


@pytest.mark.parametrize(
    "result",
    [
        KeptResponse(201, HEAD, b"done"),
        Refusal(RefusalReason.TIMEOUT, "Too late."),
        StoredFallback(),
    ],
)
def test_every_change_is_noticed(result: Result) -> None:
    packed = pack(NAME, result)
    for place in range(len(packed)):
        changed = packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :]
        with pytest.raises(BadResult):
            unpack(NAME, changed)
    for end in range(len(packed)):
        with pytest.raises(BadResult):
            unpack(NAME, packed[:end])


def test_another_keys_result_is_none() -> None:
    with pytest.raises(BadResult):
        unpack(NAME, pack(NAME[::-1], KeptResponse(201, HEAD, b"done")))


def test_a_reason_that_another_instance_knows_and_we_do_not() -> None:
    content = b"\n".join((b"invented_later", b"", b"", b"Who knows."))
    with pytest.raises(BadResult, match="not known"):
        unpack(NAME, b"1X" + _checksum(NAME, b"X", content) + content)

"""Messages arrive whole and in their order, however large, and before the end does."""

import socket

from proxy.runtime.workers.ipc import Channel, Drain, Message, Stop, WorkerReply
from tests.support import eventually


async def test_what_was_sent_before_the_end_arrives() -> None:
    heard: list[Message | str] = []
    ours, theirs = socket.socketpair()
    receiving = Channel(heard.append, lambda: heard.append("end"))
    sending = Channel(lambda _: None, lambda: None)
    await receiving.open(ours)
    await sending.open(theirs)
    large = WorkerReply(1, "x" * 5_000_000)  # many times what a socket holds
    for message in (Drain(), large, Stop()):
        sending.send(message)
    sending.close()
    await sending.closed(within=5.0)
    await eventually(lambda: len(heard) == 4)
    assert heard == [Drain(), large, Stop(), "end"]
    sending.send(Drain())  # nobody is there, and nothing happens
    receiving.close()

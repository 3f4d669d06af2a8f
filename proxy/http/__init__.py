"""HTTP/1.1 as text and rules, without sockets: heads, fields, targets, dates, framing, refusals.

Here a request's and a response's head are sorted into what is passed on and what ends at this
hop, the text of the outgoing request is written, and every answer that Holdfast makes itself has
its status and title. The package is pure and a leaf: it imports the standard library and its own
modules only, never waits and reads no clock. Every other package may import it.
"""

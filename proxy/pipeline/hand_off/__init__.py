"""Hand-off: a request is accepted, kept on disk, answered 202, and delivered in the background.

======================  =============================================================
``admission.py``        outside idempotency: decides from the head whether the request is handed
                        off, and reserves room before its body is read
``stage.py``            inside idempotency, outside the retry: writes the delivery and answers
                        202; after a failure, if the route hands failures off
``withheld.py``         withholds a failing response until that is decided
``answers.py``          what the client is told: 202, and the refusals
======================  =============================================================

What is sent later, and when, is ``delivery/``. This package may import what ``pipeline/`` may, and
the port of the deliveries' store.
"""

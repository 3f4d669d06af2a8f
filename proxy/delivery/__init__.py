"""Delivery: sends in the background what was handed off, as exchanges without a client.

======================  =============================================================
``dispatcher.py``       takes deliveries that are due, sends them, and settles how they went;
                        in one process of a machine
``lines.py``            the line of each upstream, told of live requests as well
``exchange.py``         the exchange that stands in for the client
``request.py``          a delivery as the rules about repeats see it
``service.py``          what operators and clients may see and do: list, show, retry, cancel
``resource.py``         where clients ask for their deliveries, on the listeners
======================  =============================================================

Accepting is ``pipeline/hand_off/``, the rules are ``policy/delivery/``. This package may import
``pipeline/`` (the attempt of a route, and the records of attempts), ``stores/``, ``core/``,
``policy/`` and ``http/``.
"""

"""Every hook of aiohttp that is not documented, each pinned by a contract test.

aiohttp parses requests, queues pipelined ones and runs the handler; what it leaves open is done
here by overriding methods of its ``RequestHandler`` and by reading names that begin with an
underscore. Nowhere else in ``proxy/`` is that done. The rest of ``server/`` builds on these classes
and is seen from here through :class:`~.request.ServedRequest` alone. The contract tests are in
``tests/server/aiohttp_adapter/test_contract.py``.

``protocol``      a connection: what is overridden of ``RequestHandler``
``server``        a server that makes our connections
``request``       what aiohttp asks of a request, and what a connection asks of one
``responses``     what a handler returns when it has written its response itself
``same_task``     an event loop that runs a handler in the task of its connection
``payload``       a body that is complete, taken without a copy
``tunnel``        takes the parser's place once protocols were switched
``trailers``      a parser gap: trailer fields that turn up in the next request
``parse_errors``  our answers to what the parser refuses
``parser``        which parser is in use

May import ``core``, ``policy`` and ``http``.
"""

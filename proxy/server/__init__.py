"""Everything that talks to clients, and nothing else does.

``listener``          addresses to accept on; start, drain, stop
``proxy_server``      what all connections share: routes, memory, counts, the graceful drain
``connection``        one client's connection: deadlines, bounds, accounting
``ports``             what a request asks of its connection, as protocols
``serve``             the life of one request, in one function
``admission``         what must be right before a route is asked
``exchange``          one request: what came in, waits and disconnects, how it ends
``response_writer``   relaying a response, and answers of our own, as bytes
``problems``          the texts of answers that are our own
``router``            the routes that are being served at this moment
``idle_timer``        the idle timeout of a body
``disconnect_watch``  clients that leave while their requests wait
``body/``             request bodies, and the memory that they share
``aiohttp_adapter/``  every private hook of aiohttp

May import ``core``, ``policy``, ``http`` and ``net``. The pipeline is seen as ``Route.handle``
alone. :class:`~proxy.server.listener.Listener` and :class:`~proxy.server.router.Router` are what
the application makes of it.
"""

"""Everything that talks to clients, and nothing else does.

``listener``    addresses to accept on; start, drain, stop
``connection``  one client's connection: aiohttp's protocol with our bounds
``serve``       the life of one request, in one function
``admission``   what must be right before a route is asked
``exchange``    one request: what came in, and relaying what comes back
``problems``    the answers that are our own
``router``        what is being served at this moment
"""

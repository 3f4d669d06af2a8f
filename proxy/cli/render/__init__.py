"""Output of commands: pages and tables, in plain text, JSON or colour; numbers; suggestions.

Only ``colours`` imports ``rich``, which may be missing. May import ``cli/untrusted_json``,
``cli/request_args``, ``cli/keyboard``, ``config/`` and ``policy/``; knows no command and sends no
request.
"""

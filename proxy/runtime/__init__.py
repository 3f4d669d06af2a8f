"""The process around the app: set-up, signals, configuration watch, systemd, worker processes.

``main.py`` goes from the files on the command line to an exit status; ``quick_imports.py`` and
``process_setup.py`` prepare the process; ``config_watch.py`` notices changed files; ``systemd.py``
notifies the service manager; ``workers/`` runs several apps as one. May import ``app/`` and the
packages below it; only ``cli/`` may import this package, which knows nothing of the command line.
"""

"""The process around the app: set-up, signals, configuration watch, systemd, worker processes."""

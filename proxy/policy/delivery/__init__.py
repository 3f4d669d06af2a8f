"""Deliveries: what is handed off, when it is sent, and how it ends.

Pure: time and chance are arguments, and a delivery is what its row says.
"""

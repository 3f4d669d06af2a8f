"""HTTP/1.1 as text and rules: heads, fields, targets, dates, and the answers of our own.

Pure, and a leaf: no module here imports another room, waits, or looks at a clock. Everybody may
use it.
"""

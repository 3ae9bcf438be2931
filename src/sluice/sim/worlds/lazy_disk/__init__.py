"""An m-way symmetric hash join whose sites freeze state on disk, hand units over, and clean up at the end.

After the evaluation of "Optimizing State-Intensive Non-Blocking Queries Using Run-time Adaptation".
"""

"""The PaddleCloud API of the embedded cluster, below a prefix of the same server.

A submission becomes a job document with the task roles ``trainer`` and ``pserver``, so that the scheduler,
the engines, OpenPAI's API and the portal see an ordinary job.
"""

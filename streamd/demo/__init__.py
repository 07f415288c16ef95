"""`streamd demo`, without the command line: cameras made of photographs, the real daemon, results read back from Redis.

Nothing here is a shortcut: the daemon is `streamd run` in a process of its own with a configuration folder, and results are read with
streamd.client. All that it makes lies in one temporary folder, and all that it starts ends with it.
"""

"""The state that the log adds up to: topics, partitions, their records, segments, jobs, cursors and routers. Pure.

Every frame changes it through `storage.log.apply`, live and in recovery alike. Nothing here waits, reads a clock or
touches a file.
"""

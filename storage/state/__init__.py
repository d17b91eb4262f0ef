"""The state that the log builds: topics, partitions, their records, segments, jobs, cursors and routers. Pure.

Every frame changes it through `storage.log.publisher.apply_unit`, on the live path and in recovery. Nothing here
waits, reads a clock or touches a file.
"""

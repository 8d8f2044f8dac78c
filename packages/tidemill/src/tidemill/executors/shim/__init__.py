"""The shim: the small process that runs one instance and outlives the server.

``python -I -m tidemill.executors.shim DIRECTORY``. It stands on the standard library and `tidemill.core`, reads its
whole task from the instance directory, and says what happens there. One thread, one selector while something runs.
"""

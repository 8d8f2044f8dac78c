"""The shim: the small process that runs one instance and outlives the server.

``python -I -m tidemill.shim DIRECTORY``. It uses only the standard library and `tidemill.core`. It reads its whole task
from the instance directory and writes its progress there. One thread with one selector follows the running command.
"""

"""AWS's SDK asks every 30 seconds whether an endpoint is in service; in tests it asks every second.

`make` copies this file into the environment of AWS's clients, as `sitecustomize`. Nothing else of them is changed.
"""

import sys
import time

_sleep = time.sleep
_LONGEST_S = 1.0


def _sleep_as_in_tests(seconds: float) -> None:
    caller = sys._getframe(1).f_globals.get("__name__", "")
    _sleep(min(seconds, _LONGEST_S) if caller.partition(".")[0] == "sagemaker" else seconds)


time.sleep = _sleep_as_in_tests

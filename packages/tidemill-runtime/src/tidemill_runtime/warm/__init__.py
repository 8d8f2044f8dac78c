"""Warm start: fork the script from a process that has already imported TensorFlow.

    zygote ── fork ──> guard ── fork ──> script
                         │ joins the job's namespaces, limits and rights
    runtime in the job <─┘ sends the script's pid and exit status

The zygote imports once and listens on a unix socket. Per request it forks a guard, which enters the sandbox of the
requesting process, forks the script there, and stays its parent. If a script could notice a difference from a fresh
interpreter, the guard refuses, and the runtime starts the script cold: a warm start is faster, and otherwise the same.
"""

from tidemill_runtime.warm.zygote import WarmScript, serve

__all__ = ["WarmScript", "serve"]

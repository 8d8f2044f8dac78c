"""Warm start: fork the script from a process that has TensorFlow imported already.

    zygote ── fork ──> guard ── fork ──> script
                         │ joins the job's namespaces, limits and rights
    runtime in the job <─┘ tells the script's pid and exit status

The zygote imports once and serves a unix socket. Per request it forks a guard, which enters the sandbox of the
requesting process, forks the script there, and stays its parent. A script that would notice a difference from a fresh
interpreter is refused, and the runtime then starts the script cold: a warm start is only ever faster, not different.
"""

from tidemill_runtime.warm.zygote import WarmScript, serve

__all__ = ["WarmScript", "serve"]

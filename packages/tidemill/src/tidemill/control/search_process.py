"""Run a program that searches a log by a regular expression of a user, apart from the service.

Python's engine may need exponential time for an expression, and the service would answer nobody meanwhile.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

import structlog

_ANSWER_MAX_BYTES = 64 * 1024 * 1024

_log = structlog.get_logger("tidemill.control")


async def answers_of(program: str, task: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    """Yield a program's answers; if it failed or was killed, at last its exit status as ``ended_by``.

    The program ends with the iteration.

    Args:
        program: A module that reads a task from its standard input, and writes a JSON object per line.
        task: JSON-able.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_ANSWER_MAX_BYTES,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    try:
        process.stdin.write(json.dumps(task).encode())
        process.stdin.close()
        async for line in process.stdout:
            if line.endswith(b"\n"):
                yield json.loads(line)
        status = await process.wait()
        if status > 0:
            text = (await errors).decode("utf-8", "replace")[-2000:]
            _log.error("search.failed", program=program, error=text)
        if status != 0:
            yield {"ended_by": status}
    finally:
        errors.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()

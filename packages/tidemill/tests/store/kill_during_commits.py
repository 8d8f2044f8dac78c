"""Kill a writing process repeatedly, and compare the acknowledged rows with the stored ones.

Run as a program with a database and a number of rounds. The database is the path of an SQLite file or the URL of an
empty PostgreSQL database. Each round forks a child in which several threads write rows and report every acknowledged
row on a pipe. The parent kills the child after a number of reports that depends on the round's seed, or lets a fault
point kill it. Prints the number of acknowledged rows, or fails.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, insert, select

from tidemill.core import faults
from tidemill.store.database.base import Database
from tidemill.store.database.postgresql.database import PostgresqlDatabase
from tidemill.store.database.schema import meta, metadata
from tidemill.store.database.sqlite.database import SqliteDatabase

CLIENTS = 16
LOOK_EVERY = 10


def open_database(where: str) -> Database:
    if where.startswith("postgresql://"):
        return PostgresqlDatabase.open(where, metadata=metadata)
    return SqliteDatabase.open(Path(where), metadata=metadata)


def adding(key: str) -> Callable[[Connection], None]:
    def work(connection: Connection) -> None:
        connection.execute(insert(meta), {"key": key, "value": "x" * 500})

    return work


async def write_for_ever(database: Database, report: int, seed: int) -> None:
    async def client(number: int) -> None:
        count = 0
        while True:
            key = f"row-{seed}-{number}-{count}"
            await database.write(adding(key))
            os.write(report, key.encode() + b"\n")
            count += 1

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))


def one_round(where: str, seed: int) -> set[str]:
    """Run a writer, kill it, and return the acknowledged keys."""
    chance = random.Random(seed)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        if seed % 3:
            at = ("store.commit.before", "store.commit.after")[seed % 2]
            faults._random.seed(seed)
            faults._armed = faults._parse(f"{at}:exit:{chance.choice((0.02, 0.1, 0.5))}:1")
        asyncio.run(write_for_ever(open_database(where), writer, seed))
    os.close(writer)
    kill_after = chance.randrange(1, 400)
    lines = 0
    data = b""
    while block := os.read(reader, 65536):
        data += block
        lines += block.count(b"\n")
        if lines >= kill_after:
            os.kill(child, signal.SIGKILL)
    os.close(reader)
    os.waitpid(child, 0)
    return set(data.decode().rpartition("\n")[0].split())


def refuse_losses(where: str, acknowledged: set[str], seed: int) -> None:
    with open_database(where) as database:
        stored = set(database.read(lambda c: c.execute(select(meta.c.key)).scalars().all()))
    if lost := acknowledged - stored:
        sys.exit(f"seed {seed}: {len(lost)} acknowledged rows are lost, e.g. {min(lost)}")


def main() -> None:
    where, rounds = sys.argv[1], int(sys.argv[2])
    acknowledged: set[str] = set()
    for seed in range(rounds):
        acknowledged |= one_round(where, seed)
        if seed % LOOK_EVERY == 0 or seed == rounds - 1:
            refuse_losses(where, acknowledged, seed)
    print(len(acknowledged))


if __name__ == "__main__":
    main()

"""Only the database implementations depend on a dialect: others have no SQL text, driver, or dialect's text order."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

import tidemill
import tidemill.store.objects.schema
from tidemill.store.database.schema import metadata

PACKAGE = Path(tidemill.__file__).parent
DATABASES = {file.parent for file in PACKAGE.glob("store/database/*/database.py")}
OWN_MODULES = ("sqlite3", "psycopg", "alembic.ddl", "sqlalchemy.dialects")
SQL_TEXT = ("exec_driver_sql", "text", "literal_column", "TextClause")


def sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if not DATABASES & set(path.parents))


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield every imported module, and every name imported from one, as ``module.name``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def breaches(source: str) -> set[str]:
    """Return the parts of ``source`` that depend on one dialect."""
    tree = ast.parse(source)
    names = set(imported(tree))
    found = {name for name in names if f"{name}.".startswith(tuple(f"{module}." for module in OWN_MODULES))}
    found |= {name for name in names if name.startswith("sqlalchemy.") and name.rpartition(".")[2] in SQL_TEXT}
    if any(name.partition(".")[0] in ("sqlalchemy", "alembic") for name in names):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in SQL_TEXT:
                found.add(node.attr)
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "execute" and node.args:
                found |= {"SQL in a string"} if isinstance(node.args[0], ast.Constant | ast.JoinedStr) else set()
    return found


def test_only_the_databases_are_written_for_one_dialect():
    assert {str(path): found for path in sources() if (found := breaches(path.read_text()))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import sqlite3",
        "from sqlite3 import Connection",
        "from sqlalchemy.dialects.sqlite import insert",
        "from sqlalchemy.dialects import sqlite",
        "import sqlalchemy.dialects.postgresql as pg",
        "from sqlalchemy import text",
        "import sqlalchemy\nsqlalchemy.text('SELECT 1')",
        "from sqlalchemy import Connection\ndef f(c): c.exec_driver_sql('SELECT 1')",
        "from alembic import op\nop.execute('DELETE FROM meta')",
        "from alembic import op\nop.execute(f'DELETE FROM {1}')",
    ],
)
def test_such_code_would_be_found(source):
    assert breaches(source)


@pytest.mark.parametrize(
    "table",
    [each for each in metadata.sorted_tables if any(isinstance(column.type, Text) for column in each.columns)],
    ids=lambda table: table.name,
)
def test_text_sorts_by_code_point_in_postgresql_too(table):
    definition = str(CreateTable(table).compile(dialect=postgresql.dialect()))
    columns = [line for line in definition.splitlines() if " TEXT" in line]
    assert columns
    assert [line for line in columns if 'COLLATE "C"' not in line] == []

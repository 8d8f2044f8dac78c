"""The `Database` on one SQLite file. Nothing outside this folder knows SQLite."""

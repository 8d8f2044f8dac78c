"""The `Database` on a PostgreSQL server. Nothing outside this folder knows PostgreSQL."""

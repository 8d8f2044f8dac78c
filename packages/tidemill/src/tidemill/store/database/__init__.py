"""The database of records and objects: interface, tables, migrations, and implementations for SQLite and PostgreSQL."""

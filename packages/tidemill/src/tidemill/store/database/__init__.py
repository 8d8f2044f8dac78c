"""The database below records and objects: the seam, the tables and their migrations, and SQLite behind the seam."""

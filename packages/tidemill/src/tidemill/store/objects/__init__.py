"""The object store: content in files, names and metadata in the database."""

"""Run migrations on the connection that `tidemill.store.database.revisions` hands over. Executed by alembic."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():  # the caller's transaction, which it commits
    context.run_migrations()

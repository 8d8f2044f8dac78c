"""Processing jobs: what differs from training jobs, whose driver runs them."""

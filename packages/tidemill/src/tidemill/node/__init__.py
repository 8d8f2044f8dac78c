"""The agent of an instance on a machine of a cluster: brings its data, runs it, and reports to the service."""

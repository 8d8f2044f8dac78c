"""The agent of an instance on a machine of a cluster: fetches the data, runs the instance, reports to the service."""

"""The contract between the service and the shim of an instance: its spec, its files, its processes."""

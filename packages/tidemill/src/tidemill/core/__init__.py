"""The domain in plain Python: jobs, endpoints, channels, states, names. Imports nothing but the standard library."""

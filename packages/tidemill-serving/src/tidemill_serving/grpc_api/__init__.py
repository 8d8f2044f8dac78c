"""Serve TF Serving's gRPC API on a loopback port, for the handlers of endpoints."""

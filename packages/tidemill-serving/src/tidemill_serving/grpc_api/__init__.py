"""TF Serving's gRPC API on a loopback port, for handlers of endpoints."""

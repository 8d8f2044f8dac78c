"""Messages of TF Serving's gRPC API, and their conversion to arrays. Used by the server and by worker processes."""

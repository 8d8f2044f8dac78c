"""HTTP/1.1 for clients that are not trusted: one protocol on httptools' parser, for the service and for endpoints."""

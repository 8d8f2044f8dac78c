"""MIME types of requests and answers, by the names of version 1 of AWS's SDK."""

CONTENT_TYPE_CSV = "text/csv"
CONTENT_TYPE_JSON = "application/json"
CONTENT_TYPE_NPY = "application/x-npy"
CONTENT_TYPE_OCTET_STREAM = "application/octet-stream"

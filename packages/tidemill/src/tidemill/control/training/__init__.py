"""Training jobs: admitted, planned, driven, published; and the metrics in their logs."""

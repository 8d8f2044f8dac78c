"""Thin handlers of AWS's operations: they convert request members to calls of `tidemill.control`, and results back."""

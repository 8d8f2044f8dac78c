"""AWS-shaped handlers, thin: they turn members of a request into a call of `tidemill.control`, and back."""

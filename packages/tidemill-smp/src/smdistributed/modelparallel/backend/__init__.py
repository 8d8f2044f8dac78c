"""What every framework's side of the library shares: its exceptions."""

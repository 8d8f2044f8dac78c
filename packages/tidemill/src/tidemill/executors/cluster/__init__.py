"""Instances on other machines: their records, leases and assignments. A `Placement` selects the machines."""

"""Instances on other machines: their records, leases and assignments. What places them is a `Placement`."""

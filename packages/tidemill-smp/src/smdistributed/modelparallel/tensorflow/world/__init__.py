"""This process among the others: how ranks find each other, exchange Python objects and notice a death."""

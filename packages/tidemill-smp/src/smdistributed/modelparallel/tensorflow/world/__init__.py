"""The processes of a job: how they find each other, exchange Python objects and arrays, and notice a death."""

"""Placement of a model's layers on partitions.

units      the graph to partition: layers with their costs, and the tensors between them
cost       cost of an assignment: `CutOptions`, `evaluate`
cut        automatic partitioning: `cut(graph, options)`, built on groups, orders, lattice, bound and search
report     an assignment as a table and as bars, with predicted times
file       an assignment on disk
manual     assignment by rules on layer names
context    assignment in the script: `smp.partition`
"""

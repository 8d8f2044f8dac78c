"""Which partition each part of a model belongs to.

units      what is cut: layers with their costs, and the tensors between them
cost       what an assignment costs: `CutOptions`, `evaluate`
cut        the automatic cut: `cut(graph, options)`; by way of groups, orders, lattice, bound and search
report     the decision as a table, with a prediction; picture: as bars, Graphviz text, SVG
file       the decision on disk
manual     the decision by rules
context    the decision in the script: `smp.partition`
"""

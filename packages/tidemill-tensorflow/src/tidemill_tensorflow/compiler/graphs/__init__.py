"""Graphs of training steps: flattened, cut into regions, changed, and made callable.

`nodes` has the data classes that all other modules use. `parts` splits a step: it flattens the function (`unsplit`),
cuts the graph (`regions`, `replicas`), and builds the callables (`functions`) of each variant (`noise`, `loop_sizes`,
`fused_updates`).
"""

"""Several processes or several batches.

Processes that train one model choose their variants together (`agreement`), in functions that communicate
(`shared_steps`) or run a pipeline of smp (`pipeline_steps`); `recognition` finds these functions. Keras's `fit` may run
several batches per call (`keras_batches`, `several_runs`).
"""

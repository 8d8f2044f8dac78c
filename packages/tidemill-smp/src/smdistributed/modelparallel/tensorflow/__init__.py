"""Model parallelism for TensorFlow: `import smdistributed.modelparallel.tensorflow as smp`."""

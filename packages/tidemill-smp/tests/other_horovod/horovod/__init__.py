"""In the place of Horovod itself, which cannot be installed beside today's TensorFlow."""

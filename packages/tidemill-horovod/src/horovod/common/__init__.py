"""The names that scripts import from `horovod.common`."""

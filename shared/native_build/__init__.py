"""Native libraries of TensorFlow ops: compiled into a wheel, or into a cache when first needed, and loaded.

`wheel` and `compiling` need no TensorFlow, `loading` and `compiling` no build tools. `headers` is for the C++ sources.
"""

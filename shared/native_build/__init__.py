"""Compile and load native libraries of TensorFlow ops. A wheel contains them; a checkout compiles them on first use.

`wheel` and `compiling` do not need TensorFlow; `loading` and `compiling` do not need build tools. `headers` has the C++
headers that all libraries share.
"""

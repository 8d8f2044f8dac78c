"""Code that does not depend on the framework: the library's exceptions."""

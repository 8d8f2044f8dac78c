"""The keys of collections, under their module of the real library."""

from smdebug.core.configuration import CollectionKeys

__all__ = ["CollectionKeys"]

"""The registry of models: packages, their groups and versions."""

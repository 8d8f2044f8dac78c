"""Multi-model endpoints: clients load and unload models, each with its own code."""

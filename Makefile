PYTHON ?= python3.11
UV := .venv/bin/uv

.PHONY: help
help:
	@echo "make quickstart   train, deploy and predict on a real data set"

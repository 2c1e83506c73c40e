"""Choosing: manifests as documents and as files, and the pure function that picks a stamp."""

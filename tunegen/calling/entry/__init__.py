"""Writes the native entry of a signature as LLVM IR. Needed only where its object is not in the cache."""

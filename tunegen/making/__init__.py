"""Making: template and perm to LLVM IR, IR to an object, an object to an address, with a cache between."""

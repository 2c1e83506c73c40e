"""The public floor: decorators, scopes, the kernel object, policy and status."""

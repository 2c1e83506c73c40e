"""The harness: everything that measures. It gates and races the variants of a scope in processes that may die."""

if __name__ != "tunegen.harness":
    raise ImportError(f"import this package as tunegen.harness, not as {__name__}")

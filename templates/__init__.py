"""LLVM IR as jinja2: `lib/` and `isa/` hold shared macros, every other folder one kernel family."""

if __name__ != "tunegen.templates":
    raise ImportError(f"import this package as tunegen.templates, not as {__name__}")

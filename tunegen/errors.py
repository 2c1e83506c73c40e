"""Every error that tunegen raises on purpose, in one tree.

Each message says what was being done, to which kernel, variant and operand, what came, what is allowed and what to try.
"""

from __future__ import annotations


class TunegenError(Exception):
    """Base of all errors of this package."""


class DeclarationError(TunegenError):
    """A kernel or scope is declared wrongly. Names the kernel, the row and the value."""

    def __init__(self, kernel: str, problem: str) -> None:
        super().__init__(kernel, problem)
        self.kernel = kernel
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.kernel}: {self.problem}"


class ExpressionError(TunegenError):
    """A `where`, size-condition or `requires` text cannot be read."""


class KnobError(TunegenError, ValueError):
    """A `TUNE_*` environment variable has a value that is not allowed."""


class Declined(TunegenError):
    """A template says that this variant does not exist here. The argument is the reason."""


class RenderError(TunegenError):
    """A template could not be rendered."""


class CompileError(TunegenError):
    """LLVM could not make a usable object of the rendered IR. `step` is what failed: verify, compile or link."""

    step = "compile"


class VerifyError(CompileError):
    """LLVM refused the rendered IR."""

    step = "verify"


class LinkError(CompileError):
    """An object could not be mapped into this process."""

    step = "link"


class CompilerUnavailable(CompileError):
    """This process has no usable compiler (llvmlite does not load, or LLVM has no target for the box)."""


class GateError(TunegenError):
    """A variant gave a wrong answer. Fields: operand, index, got, expected, bound."""

    def __init__(self, variant: str, operand: str, index: tuple[int, ...], got: float, expected: float, bound: str):
        super().__init__(variant, operand, index, got, expected, bound)
        self.variant = variant
        self.operand = operand
        self.index = index
        self.got = got
        self.expected = expected
        self.bound = bound

    def __str__(self) -> str:
        return (
            f"{self.variant}: operand {self.operand}{list(self.index)}: got {self.got!r}, "
            f"expected {self.expected!r}, allowed {self.bound}"
        )


class ParameterError(TunegenError, ValueError):
    """Values that a kernel's parameters refuse, or parameters that are declared wrongly. `problems` are all reasons."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


class SessionError(TunegenError):
    """A session is used after it has ended."""


class StoreError(TunegenError):
    """A manifest could not be written. `status` says in a word why: locked, read_only, newer, foreign (it belongs to
    another box), unreadable, malformed, or write_failed.
    """

    def __init__(self, problem: str, status: str = "write_failed") -> None:
        super().__init__(problem, status)
        self.problem = problem
        self.status = status

    def __str__(self) -> str:
        return self.problem


class ProfileError(TunegenError, ValueError):
    """A profile is refused as a whole. `problems` are all reasons."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


class FreezeError(TunegenError):
    """A frozen build cannot be made: a kernel has nothing to bake, the folder is in use, or there is no linker."""


class ScopeNotFound(TunegenError):
    """No scope of this name is installed, and no module of this name declares one."""


class ScopeBroken(TunegenError):
    """The module of a scope raises when it is imported."""


class KernelNotFound(TunegenError):
    """No kernel of this name is declared in the scopes at hand."""


class WorkerError(TunegenError):
    """A tuning worker could not be started or spoke nonsense."""

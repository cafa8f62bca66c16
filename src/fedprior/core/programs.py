"""Programs compiled for how long they run, with the compiler's options for the backend in use."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

# On a GPU, autotuning takes longer than it saves for such programs; on a CPU, a lower optimization
# level saves a tenth to a third of the compilation time of rounds, which become 6% slower, and two
# thirds of that of initial draws, whose bits stay the same.
_ON_GPU = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
_GIVEN = os.environ.get("XLA_FLAGS", "")  # what it names is the user's choice
_LEVEL = "xla_backend_optimization_level"
_ON_CPU = {} if _LEVEL in _GIVEN else {_LEVEL: 1}
# On a GPU, small rounds take as long as their kernels take to start: kernels that do not wait for
# each other start together, and a round with all its steps is one graph. (Older compilers lack it.)
_ONE_GRAPH: dict[str, Any] = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,"
    "DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    "xla_gpu_command_buffer_unroll_loops": True,
}
_GRAPHS = {} if "command_buffer" in _GIVEN else _ONE_GRAPH


@dataclass(frozen=True, eq=False)
class _Program:
    """A jitted function with the compiler's options for the backend in use."""

    function: Callable[..., Any]
    options: dict[str, Any]
    compiler: dict[str, dict[str, Any]]  # by backend; of no other one are options known

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._here(*given, **named)

    def lower(self, *given: Any, **named: Any) -> Any:
        return self._here.lower(*given, **named)

    @cached_property
    def _here(self) -> Any:
        import jax

        given = self.compiler.get(jax.default_backend())
        return jax.jit(self.function, compiler_options=given, **self.options)


def brief(function: Callable[..., Any], **options: Any) -> _Program:
    """`jax.jit` for a program that runs for a few seconds at most."""
    return _Program(function, options, {"cpu": _ON_CPU, "gpu": _ON_GPU})


def called(function: Callable[..., Any], compiled: bool, *static: int) -> Callable[..., Any]:
    """The function as it is, or jitted, once for all its callers.

    `static` are the places of arguments that a program is compiled for, the first one by default.
    """
    return _jitted(function, static or (0,)) if compiled else function


@lru_cache
def _jitted(function: Callable[..., Any], static: tuple[int, ...]) -> Callable[..., Any]:
    import jax

    return jax.jit(function, static_argnums=static)


def lasting(function: Callable[..., Any], **options: Any) -> _Program:
    """`jax.jit` for a program of many small steps that runs often, such as rounds."""
    import jax

    return _Program(function, options, {"gpu": _GRAPHS} if jax.__version_info__ >= (0, 10) else {})

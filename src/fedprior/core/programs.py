"""Programs compiled for how long they run, with the compiler's options for the backend in use."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# On a GPU, autotuning takes longer than it saves for such programs; on a CPU, a lower optimization
# level saves a tenth to a third of the compilation time of rounds, which become 6% slower, and two
# thirds of that of initial draws, whose bits stay the same.
_ON_GPU = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
_LEVEL = "xla_backend_optimization_level"
_ON_CPU = {} if _LEVEL in os.environ.get("XLA_FLAGS", "") else {_LEVEL: 1}
# On a GPU, small rounds take as long as their kernels take to start: kernels that do not wait for
# each other start together, and a round with all its steps is one graph. (Older compilers lack it.)
_GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,"
    "DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    "xla_gpu_command_buffer_unroll_loops": True,
}


@dataclass(frozen=True, eq=False)
class _Program:
    """A jitted function with the compiler's options for the backend in use."""

    on_cpu: Any
    on_gpu: Any

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._here(*given, **named)

    def lower(self, *given: Any, **named: Any) -> Any:
        return self._here.lower(*given, **named)

    @property
    def _here(self) -> Any:
        import jax

        return self.on_cpu if jax.default_backend() == "cpu" else self.on_gpu


def brief(function: Callable[..., Any], **options: Any) -> _Program:
    """`jax.jit` for a program that runs for a few seconds at most."""
    import jax

    return _Program(
        on_cpu=jax.jit(function, compiler_options=_ON_CPU, **options),
        on_gpu=jax.jit(function, compiler_options=_ON_GPU, **options),
    )


def lasting(function: Callable[..., Any], **options: Any) -> _Program:
    """`jax.jit` for a program of many small steps that runs often, such as rounds."""
    import jax

    graphs = _GRAPHS if jax.__version_info__ >= (0, 10) else None
    return _Program(
        on_cpu=jax.jit(function, **options),
        on_gpu=jax.jit(function, compiler_options=graphs, **options),
    )

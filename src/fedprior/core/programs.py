"""Compiled programs that run only briefly: the compiler leaves out what they would not pay for."""

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

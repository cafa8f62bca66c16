"""Compiled programs get the compiler's options of the backend that runs them, and no others."""

import jax
import pytest

from fedprior.core import programs


@pytest.mark.parametrize(
    ("kind", "backend", "expected"),
    [
        (programs.brief, "cpu", programs._ON_CPU),
        (programs.brief, "gpu", programs._ON_GPU),
        (programs.brief, "tpu", None),
        (programs.lasting, "cpu", None),
        (programs.lasting, "gpu", programs._GRAPHS),
        (programs.lasting, "tpu", None),
    ],
)
def test_options_are_those_of_the_backend(kind, backend, expected, monkeypatch):
    given = []

    def jit(function, **options):
        given.append(options)
        return function

    monkeypatch.setattr(jax, "jit", jit)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "__version_info__", (0, 11, 2))
    program = kind(lambda x: x + 1, static_argnames=("n",))
    assert (program(1), program(2)) == (2, 3)
    assert given == [{"compiler_options": expected, "static_argnames": ("n",)}]  # compiled once


def test_older_compilers_know_no_graphs(monkeypatch):
    monkeypatch.setattr(jax, "__version_info__", (0, 9, 9))
    assert programs.lasting(abs).compiler == {}

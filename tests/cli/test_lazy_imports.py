"""What is imported when: JAX, DuckDB, pandas and scikit-learn only where they are used."""

import json
import subprocess
import sys

HEAVY = ["jax", "jaxlib", "optax", "duckdb", "pandas", "sklearn", "scipy", "matplotlib"]
HEAVY += ["dp_accounting", "opendp"]
LIGHT = [
    "fedprior",
    "fedprior.core.algorithm",
    "fedprior.core.check",
    "fedprior.core.protocols",
    "fedprior.core.random",
    "fedprior.core.tree",
    "fedprior.data.datasets",
    "fedprior.data.digits",
    "fedprior.data.examples",
    "fedprior.data.federation",
    "fedprior.data.folder",
    "fedprior.data.mnist",
    "fedprior.data.partition",
    "fedprior.data.synthetic",
    "fedprior.data.table",
    "fedprior.privacy.cohort",
    "fedprior.populations.discrete",
    "fedprior.populations.distillation",
    "fedprior.populations.flat",
    "fedprior.populations.gaussian",
    "fedprior.populations.laplace",
    "fedprior.populations.mixture",
    "fedprior.populations.multitask",
    "fedprior.populations.point",
    "fedprior.populations.shared_body",
    "fedprior.populations.subspace",
    "fedprior.populations.tether",
    "fedprior.channels.central_gaussian",
    "fedprior.channels.identity",
    "fedprior.channels.local_gaussian",
    "fedprior.channels.quantize",
    "fedprior.channels.randomized_response",
    "fedprior.exchange.checkpoint",
    "fedprior.exchange.memory",
    "fedprior.exchange.trees",
    "fedprior.data.aggregate",
    "fedprior.data.baseball",
    "fedprior.privacy.accounting",
    "fedprior.privacy.calibrate",
    "fedprior.privacy.ledger",
    "fedprior.privacy.plans",
    "fedprior.estimation.conjugate.estimate",
    "fedprior.estimation.federated.algorithms",
    "fedprior.estimation.gaussian.estimate",
    "fedprior.estimation.mixture.estimate",
    "fedprior.estimation.private.means",
    "fedprior.estimation.private.mixture",
    "fedprior.estimation.private.rates",
    "fedprior.estimation.conjugate.risk",
]


def loaded_by(code):
    """Heavy modules loaded after `code` has run in a fresh interpreter, and its output."""
    script = (
        f"import json, sys\n{code}\nprint(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    *shown, last = found.stdout.splitlines()
    return json.loads(last), "\n".join(shown)


def test_the_light_layers_load_nothing_heavy():
    """All of them in one interpreter: whatever one of them loads is seen at the end."""
    loaded, _ = loaded_by(f"import importlib\nfor name in {LIGHT}: importlib.import_module(name)")
    assert loaded == []


def test_regression_loads_neither_jax_nor_duckdb():
    names = ["linear", "logistic", "mixture", "private_mixture", "face.personal"]
    names = [f"fedprior.regression.{name}" for name in names]
    loaded, _ = loaded_by(f"import importlib\nfor name in {names}: importlib.import_module(name)")
    assert not {"jax", "duckdb", "matplotlib", "dp_accounting"} & set(loaded)


def test_help_loads_nothing_heavy():
    code = """
from fedprior.cli.main import main
for words in (["--help"], ["train", "--help"], ["--version"], ["datasets", "--json"],
              ["algorithms"],
              ["estimate", "--help"], ["regress", "--help"], ["reproduce"],
              ["privacy", "plan", "--help"]):
    sys.argv = ["fedprior", *words]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, stop.code
"""
    loaded, shown = loaded_by(code)
    assert loaded == []
    assert "Usage" in shown


def test_an_estimate_loads_no_tool_of_numpy_that_it_does_not_use(tmp_path):
    """What SciPy would import for its copy of NumPy's namespace: 0.1 s of CPU."""
    table = tmp_path / "rows.csv"
    table.write_text("g,y\n" + "".join(f"{i % 7},{i % 3 % 2}\n" for i in range(70)))
    code = f"""
from fedprior.cli.main import main
sys.argv = ["fedprior", "estimate", {str(table)!r}, "--group", "g", "--outcome", "y", "--json"]
main()
assert "scipy.special" in sys.modules
parts = ["numpy.f2py.crackfortran", "numpy.testing._private", "unittest"]
print([name for name in parts if name in sys.modules])
import numpy
numpy.testing.assert_allclose(1.0, 1.0)
assert "numpy.testing._private" in sys.modules
"""
    loaded, shown = loaded_by(code)
    assert shown.splitlines()[-1] == "[]"
    assert not {"jax", "pandas", "sklearn", "matplotlib", "dp_accounting"} & set(loaded)


def test_public_names_are_found_on_use():
    code = """
import fedprior
assert "jax" not in sys.modules
assert set(fedprior.__all__) <= set(dir(fedprior))
for name in fedprior.__all__:
    value = getattr(fedprior, name)
    assert value is not None
    for inner in getattr(value, "__all__", []):
        assert getattr(value, inner) is not None, (name, inner)
try:
    fedprior.nothing
except AttributeError as error:
    assert "nothing" in str(error)
else:
    raise SystemExit(1)
"""
    loaded, _ = loaded_by(code)
    assert "jax" in loaded

"""EM in the simulator: D5 and D4 exactly, curvature, scales that neither collapse nor run away."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp, softmax

import fedprior
from fedprior.core import random, tree
from fedprior.data.federation import PADDED_AXES, Federation, Split
from fedprior.learning import curvature
from fedprior.learning.curvature import Samples, measure, some_samples
from fedprior.learning.method import ChannelNoise
from fedprior.learning.noise import Noise
from fedprior.learning.predictive import several
from fedprior.learning.priors import shares_under_noise

FALSE_ALARM = 1e-6
LINEAR = fedprior.models.linear(3)
WIDTH = 4
EXACT = {"curvature": "full", "steps": fedprior.Steps(local_steps=1)}
EVERYTHING = fedprior.Batches(steps_per_epoch=1)


def regression(theta, *, sizes, noise=0.5, seed=0, features=None):
    """Clients with the given theta (clients, 4), an intercept first; no rows held out."""
    draws = np.random.default_rng(seed)
    sizes = np.broadcast_to(sizes, len(theta))
    own = np.repeat(np.arange(len(theta)), sizes)
    x = draws.normal(size=(len(own), 3)) if features is None else features
    y = theta[own, 0] + (x * theta[own, 1:]).sum(axis=1) + noise * draws.normal(size=len(own))
    rows = [np.flatnonzero(own == client) for client in range(len(theta))]
    train = Split.gather(x.astype(np.float32), y.astype(np.float32), rows)
    empty = Split.gather(train.x, train.y, [np.empty(0, int)] * len(theta))
    names = np.arange(len(theta)).astype(str)
    return Federation(train=train, valid=empty, test=empty, clients=names, classes=None)


def rows(clients):
    """(X, y) of each client in double precision, the intercept's column first."""
    for client in range(clients.num_clients):
        data = clients.train.client(client)
        yield np.column_stack([np.ones(len(data.x)), data.x]).astype(float), data.y.astype(float)


def states(algorithm, clients, rounds, seed=0, channel=None):
    """The state before every round and after the last, with everyone in each, and the memories."""
    number = jnp.arange(clients.num_clients, dtype=jnp.int32)
    data = jax.tree.map(jnp.asarray, clients.train.padded(np.arange(clients.num_clients)))
    root = random.root(seed)

    @jax.jit
    def play():
        def keys(purpose, *path):
            return jax.vmap(lambda client: random.fold(root, purpose, *path, client))(number)

        def one_round(carry, round_):
            state, memories = carry
            local = jax.vmap(algorithm.local, in_axes=(None, 0, PADDED_AXES, 0))
            messages, memories = local(state, memories, data, keys("local", round_))
            total = jax.tree.map(lambda leaf: leaf.sum(axis=0), messages)
            if channel is not None:
                sent = jax.vmap(lambda one: channel.encode(tree.flatten(one), None))(messages.value)
                noisy = channel.decode(sent.sum(axis=0), random.fold(root, "decode", round_))
                total = total._replace(value=tree.unflatten(noisy, total.value))
            return (algorithm.update(state, total), memories), state

        state = algorithm.init(random.fold(root, "init"))
        memories = jax.vmap(algorithm.enroll, in_axes=(None, 0, 0))(state, number, keys("enroll"))
        (last, memories), before = jax.lax.scan(one_round, (state, memories), jnp.arange(rounds))
        return before, last, memories

    before, last, memories = jax.tree.map(np.asarray, play())
    path = [jax.tree.map(lambda leaf: leaf[r], before) for r in range(rounds)]  # noqa: B023
    return [*path, last], memories


def vector(theta):
    """Intercept, then weights; leading axes stay."""
    return np.concatenate(
        [np.asarray(theta["intercept"], float)[..., None], np.asarray(theta["weight"], float)], -1
    )


def population_of(state):
    """Shares, centers and variances (components, 4) of a state, and the noise variance."""
    gamma, noise = state["gamma"], float(state["noise_variance"])
    if "centers" not in gamma:
        scale = gamma["scale"]
        scale = vector(scale) if isinstance(scale, dict) else np.full(WIDTH, scale)
        return np.ones(1), vector(gamma["mean"])[None], scale[None] ** 2, noise
    centers = vector(gamma["centers"])
    scale = gamma.get("scale", np.zeros(len(centers)))[:, None] + np.zeros(WIDTH)
    return softmax(gamma["log_shares"].astype(float)), centers, scale**2, noise


def log_likelihood(clients, state):
    """log p(y | X, gamma), theta integrated out: the objective of D5, for every population."""
    shares, centers, variances, noise = population_of(state)
    total = 0.0
    for x, y in rows(clients):
        terms = [
            log_normal(y - x @ center, noise * np.eye(len(y)) + (x * variance) @ x.T)
            for center, variance in zip(centers, variances, strict=True)
        ]
        total += logsumexp(np.log(shares) + terms)
    return total


def log_normal(away, covariance):
    """log N(away; 0, covariance), in a tenth of SciPy's time."""
    factor = np.linalg.cholesky(covariance)
    whole = np.linalg.solve(factor, away)
    logs = 2 * np.log(np.diag(factor)).sum() + len(away) * np.log(2 * np.pi)
    return -(whole @ whole + logs) / 2


@pytest.fixture(scope="module")
def few():
    """30 clients of 2 to 9 samples: some have fewer than theta has coordinates."""
    draws = np.random.default_rng(4)
    theta = np.array([0.5, -1, 2, 0]) + 0.7 * draws.normal(size=(30, WIDTH))
    return regression(theta, sizes=draws.integers(2, 10, 30), seed=5)


@pytest.fixture(scope="module")
def kinds():
    """400 clients of two kinds, their theta and the two centers."""
    draws = np.random.default_rng(1)
    centers = 1.5 * draws.normal(size=(2, WIDTH))
    theta = centers[draws.integers(0, 2, 400)] + 0.2 * draws.normal(size=(400, WIDTH))
    return regression(theta, sizes=draws.integers(4, 10, 400), seed=2), theta, centers


def twin(clients, rounds, each=False):
    """D5's EM in plain NumPy, from mean 0 and variances 1; one scale or one a coordinate."""
    mean, spread, noise = np.zeros(WIDTH), np.ones(WIDTH), 1.0
    for _ in range(rounds):
        thetas, second, residual, count = [], np.zeros(WIDTH), 0.0, 0
        for x, y in rows(clients):
            covariance = np.linalg.inv(x.T @ x / noise + np.diag(1 / spread))
            theta = covariance @ (x.T @ y / noise + mean / spread)
            thetas.append(theta)
            second += np.diag(covariance)
            residual += ((y - x @ theta) ** 2).sum() + np.trace(x @ covariance @ x.T)
            count += len(y)
        mean = np.mean(thetas, axis=0)
        spread = (((thetas - mean) ** 2).sum(axis=0) + second) / len(thetas)
        spread = spread if each else np.full(WIDTH, spread.mean())
        noise = residual / count
    return mean, spread, noise, np.array(thetas)


@pytest.mark.parametrize("each", [False, pytest.param(True, marks=pytest.mark.evidence)])
def test_linear_rounds_are_the_em_of_d5(few, each):
    """And never lower the marginal likelihood, clients with n < d included."""
    algorithm = fedprior.learning.gaussian_em(LINEAR, per_coordinate=each, **EXACT)
    path, memories = states(algorithm, few, 12)
    mean, spread, noise, thetas = twin(few, 12, each)
    _, centers, variances, found = population_of(path[-1])
    np.testing.assert_allclose(centers[0], mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(variances[0], spread, rtol=1e-4)
    np.testing.assert_allclose(found, noise, rtol=1e-4)
    np.testing.assert_allclose(vector(memories["w"])[:, 0], thetas, rtol=1e-3, atol=1e-4)
    own = jax.tree.map(lambda leaf: leaf[0], memories)
    data = jax.tree.map(jnp.asarray, few.train.client(0))
    theta = jax.jit(algorithm.personalize)(path[-1], own, data, None)  # no step beyond the rounds'
    np.testing.assert_array_equal(vector(theta), vector(own["w"])[0])
    values = [log_likelihood(few, state) for state in path]
    assert (np.diff(values) > -1e-3).all()
    assert values[-1] > values[0] + 10


LOOKED_AT = [0, 1, 2, 4, 8, 16, 25]


@pytest.mark.evidence
def test_a_mixture_is_learned_to_within_two_percent_of_knowing_it(kinds):
    """Where clustering the shrunken thetas collapses (tests/learning/test_clustering.py).

    Exact EM, so that no round lowers the marginal likelihood.
    """
    clients = kinds[0]
    path, memories = states(fedprior.learning.mixture_em(LINEAR, jitter=0.5, **EXACT), clients, 25)
    assert excess(memories, *kinds) < 0.02
    np.testing.assert_allclose(path[-1]["gamma"]["scale"], 0.2, rtol=0.15)
    values = [log_likelihood(clients, path[place]) for place in LOOKED_AT]
    assert (np.diff(values) > -1e-2).all()
    assert values[-1] > values[0] + 50


def excess(memories, clients, theta, centers):
    """Squared error of the personal thetas over that of knowing the population, less 1."""
    personal = np.einsum("il,ild->id", memories["share"], vector(memories["w"]))
    known = oracle(clients, centers, 0.2, 0.25)
    error, least = (((each - theta) ** 2).sum(axis=1).mean() for each in (personal, known))
    return error / least - 1


@pytest.mark.evidence
def test_a_mixture_of_many_clients_is_learned_to_within_a_percent_of_knowing_it():
    draws = np.random.default_rng(1)
    centers = 1.5 * draws.normal(size=(2, WIDTH))
    theta = centers[draws.integers(0, 2, 3000)] + 0.2 * draws.normal(size=(3000, WIDTH))
    clients = regression(theta, sizes=draws.integers(4, 12, 3000), seed=2)
    _, memories = states(fedprior.learning.mixture_em(LINEAR, jitter=0.5, **EXACT), clients, 60)
    assert excess(memories, clients, theta, centers) < 0.01


def test_a_discrete_mixture_is_the_em_of_d4(kinds):
    """No round lowers the marginal likelihood; at rest the centers are weighted least squares."""
    clients, _, centers = kinds
    path, _ = states(fedprior.learning.discrete_mixture(LINEAR, jitter=0.5, **EXACT), clients, 25)
    values = [log_likelihood(clients, path[place]) for place in LOOKED_AT]
    assert (np.diff(values) > -1e-2).all()
    shares, found, _, noise = population_of(path[-1])
    top, bottom, squares, alphas = np.zeros((2, WIDTH)), np.zeros((2, WIDTH, WIDTH)), 0.0, []
    for x, y in rows(clients):
        residual = ((y[:, None] - x @ found.T) ** 2).sum(axis=0)
        alpha = softmax(np.log(shares) - residual / (2 * noise))
        alphas.append(alpha)
        squares += alpha @ residual
        top += alpha[:, None] * (x.T @ y)
        bottom += alpha[:, None, None] * (x.T @ x)
    np.testing.assert_allclose(found, np.linalg.solve(bottom, top[..., None])[..., 0], atol=1e-3)
    np.testing.assert_allclose(shares, np.mean(alphas, axis=0), atol=1e-3)
    np.testing.assert_allclose(noise, squares / clients.train.size.sum(), rtol=1e-3)
    order, wanted = np.argsort(found[:, 0]), np.argsort(centers[:, 0])
    np.testing.assert_allclose(found[order], centers[wanted], atol=0.2)


def oracle(clients, centers, scale, noise):
    """Posterior means under the known mixture."""
    found = []
    for x, y in rows(clients):
        matrix = x.T @ x / noise + np.eye(WIDTH) / scale**2
        each = [np.linalg.solve(matrix, x.T @ y / noise + c / scale**2) for c in centers]
        spread = noise * np.eye(len(y)) + scale**2 * x @ x.T
        logits = [log_normal(y - x @ c, spread) for c in centers]
        found.append(softmax(logits) @ np.array(each))
    return np.array(found)


def test_the_scale_survives_where_the_joint_mode_collapses():
    """V < 4 s: the joint mode's scale is 0 (ERRATA 31). Would notice half of the variance gone.

    One mean a client (the features are 0): with s = noise / n the maximum is V - s, its standard
    error sqrt(2 / m) V to first order.
    """
    draws, number, size, scale = np.random.default_rng(3), 1500, 4, 0.4
    theta = np.zeros((number, WIDTH))
    theta[:, 0] = scale * draws.normal(size=number)
    features = np.zeros((number * size, 3))
    clients = regression(theta, sizes=size, noise=1.0, seed=8, features=features)
    population = fedprior.populations.Gaussian(scale=0.4, per_coordinate=True)
    path, _ = states(fedprior.em(LINEAR, population, noise_variance=1.0, **EXACT), clients, 25)
    found = float(path[-1]["gamma"]["scale"]["intercept"]) ** 2
    error = np.sqrt(2 / number) * (scale**2 + 1 / size) * stats.norm.isf(FALSE_ALARM / 2)
    assert abs(found - scale**2) < error < 0.5 * scale**2


@pytest.mark.parametrize("model", [LINEAR, fedprior.models.logistic(3, 3)], ids=["linear", "three"])
def test_curvature_is_the_hessian_where_outputs_are_linear(model):
    draws = np.random.default_rng(0)
    theta = jax.tree.map(
        lambda leaf: np.asarray(draws.normal(size=leaf.shape), np.float32),
        jax.eval_shape(model.init, random.root(0)),
    )
    x = draws.normal(size=(6, 3)).astype(np.float32)
    y = draws.normal(size=6).astype(np.float32) if model is LINEAR else np.array([0, 1, 1, 0, 2, 0])
    mask = np.array([1, 1, 1, 0, 1, 0], bool)

    def total(flat):
        losses = model.loss(model.apply(tree.unflatten(flat, theta), x), y)
        return jnp.sum(losses * mask)

    @jax.jit
    def both(flat, samples):
        found = [measure(model, theta, samples, curvature=kind) for kind in ("full", "diagonal")]
        return found, total(flat), jax.grad(total)(flat), jax.hessian(total)(flat)

    flat = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(theta)])
    poisoned = np.where(mask[:, None], x, np.nan)  # padding must not matter
    found, loss, gradient, hessian = both(flat, Samples(poisoned, y, mask, np.float32(1)))
    for each, wanted in zip(found, (hessian, np.diag(hessian)), strict=True):
        np.testing.assert_allclose(each.loss, loss, rtol=1e-5)
        np.testing.assert_allclose(each.gradient, gradient, atol=1e-5)
        np.testing.assert_allclose(each.curvature, wanted, atol=1e-5)


def test_curvature_in_blocks_is_the_same_and_never_negative(monkeypatch):
    model = fedprior.mlp((3,), 3, hidden=(4,))
    theta = jax.jit(model.init)(random.root(0))
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(7, 3)).astype(np.float32), np.array([0, 1, 2, 0, 1, 2, 0])
    samples = jax.tree.map(jnp.asarray, Samples(x, y, np.arange(7) < 6, np.float32(2)))
    whole = jax.jit(lambda s: measure(model, theta, s, curvature="diagonal"))(samples)
    monkeypatch.setattr(curvature, "_ENTRIES", 2 * 3 * tree.size(theta))  # two samples at once
    parts = jax.jit(lambda s: measure(model, theta, s, curvature="diagonal"))(samples)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert (np.asarray(whole.curvature) >= 0).all()


@pytest.mark.parametrize("number", [3, 100])
def test_some_samples_stand_for_all(few, number):
    """Other ones at every draw, counted up to the client's size; all of them where it has fewer."""
    data = jax.tree.map(jnp.asarray, few.train.client(int(np.argmax(few.train.size))))
    size, draws = int(data.size), jnp.arange(4)
    words = jnp.array([1, 2], jnp.uint32)
    found = jax.jit(jax.vmap(lambda draw: some_samples(data, number, words, draw)))(draws)
    counts = np.asarray(found.mask).sum(axis=1)
    np.testing.assert_allclose(counts * np.asarray(found.share), size)
    assert counts.max() == min(number, size)
    kept = [np.sort(y[mask]) for y, mask in zip(found.y, np.asarray(found.mask), strict=True)]
    if number > size:
        np.testing.assert_array_equal(kept[0], np.sort(data.y))
    else:
        assert not np.array_equal(kept[0], kept[1])


def test_the_diagonal_is_exact_for_an_orthogonal_design():
    """Columns of signs without correlation: steps to rest, then the same EM as in full."""
    signs = np.array([[a, b, a * b] for a in (-1, 1) for b in (-1, 1)], float)
    draws = np.random.default_rng(0)
    theta = draws.normal(size=(20, WIDTH))
    clients = regression(theta, sizes=8, features=np.tile(signs, (40, 1)), noise=0.5)
    steps = {"steps": fedprior.Steps(local_steps=60, batches=EVERYTHING), "theta_rate": 0.5}
    path, _ = states(fedprior.learning.gaussian_em(LINEAR, **steps), clients, 5)
    mean, spread, noise, _ = twin(clients, 5)
    _, centers, variances, found = population_of(path[-1])
    np.testing.assert_allclose(centers[0], mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(variances[0], spread, rtol=1e-4)
    np.testing.assert_allclose(found, noise, rtol=1e-4)


@pytest.mark.evidence
def test_a_narrow_prior_does_not_make_gradient_steps_unstable(few):
    """An explicit step would grow by rate / (n scale^2) = 1e4 each time."""
    algorithm = fedprior.learning.gaussian_em(
        LINEAR, scale=1e-3, steps=fedprior.Steps(batches=EVERYTHING), noise_variance=1.0
    )
    path, memories = states(algorithm, few, 3)
    assert np.abs(vector(memories["w"])).max() < 1
    assert np.isfinite(population_of({**path[-1], "noise_variance": 1.0})[1]).all()


@pytest.mark.evidence
def test_laplace_em_finds_the_scale():
    """b to 10%, where maximizing jointly sends it to its floor; 300 clients of 12."""
    draws = np.random.default_rng(5)
    theta = np.array([1, 0, -1, 0.5]) + draws.laplace(scale=0.5, size=(300, WIDTH))
    clients = regression(theta, sizes=12, seed=9)
    path, _ = states(fedprior.learning.laplace_em(LINEAR, **EXACT), clients, 60)
    np.testing.assert_allclose(path[-1]["gamma"]["scale"], 0.5, rtol=0.1)
    np.testing.assert_allclose(path[-1]["noise_variance"], 0.25, rtol=0.1)
    np.testing.assert_allclose(
        vector(path[-1]["gamma"]["mean"]), np.median(theta, axis=0), atol=0.1
    )


@pytest.mark.evidence
def test_one_component_is_federated_averaging(federation, play):
    """No jitter, no choice: the same steps on the same batches."""
    steps = fedprior.Steps(local_steps=3, batches=fedprior.Batches(size=4))
    model, common = fedprior.models.logistic(4, 3), {"steps": steps}
    population = fedprior.populations.Discrete(num_components=1, jitter=0.0)
    one = fedprior.em(model, population, gamma_rate=0.2, **common)
    plain = fedprior.learning.fedavg(model, gamma_rate=0.2, **common)
    found, wanted = (play(each, federation, 2)[0]["gamma"] for each in (one, plain))
    for block in ("intercept", "weight"):
        np.testing.assert_allclose(found["centers"][block][0], wanted["mean"][block], atol=1e-6)


def test_a_clustered_client_trains_and_predicts_with_its_likeliest_model(federation):
    model = fedprior.models.logistic(4, 3)
    algorithm = fedprior.learning.clustered(
        model, num_components=3, jitter=1.0, steps=fedprior.Steps(local_steps=2)
    )
    data = jax.tree.map(jnp.asarray, federation.train.client(0))

    @jax.jit
    def run():
        state = algorithm.init(random.root(0))
        memory = algorithm.enroll(state, 0, random.root(1))
        message, _ = algorithm.local(state, memory, data, random.root(2))
        theta = algorithm.personalize(state, memory, data, random.root(3))
        each = jax.vmap(lambda one: model.loss(model.apply(one, data.x), data.y).sum())
        return state["gamma"]["centers"], message, theta, each(state["gamma"]["centers"])

    centers, message, theta, losses = run()
    best = int(np.argmin(losses))
    moved = np.asarray(message.value["moves"]["weight"])
    assert [bool(np.abs(one).max() > 0) for one in moved] == [one == best for one in range(3)]
    np.testing.assert_array_equal(theta["weight"], centers["weight"][best])
    np.testing.assert_allclose(message.value["share"], np.eye(3)[best] - 1 / 3, atol=1e-6)


def test_a_mixed_client_predicts_with_probabilities():
    """p(y | x) is the mean of the components' probabilities, not their mean logits."""
    model = fedprior.models.logistic(2, 3)
    algorithm = fedprior.learning.discrete_mixture(model)
    draws = np.random.default_rng(0)
    components = {
        "intercept": draws.normal(size=(2, 3)).astype(np.float32),
        "weight": draws.normal(size=(2, 2, 3)).astype(np.float32),
    }
    x, shares = draws.normal(size=(4, 2)).astype(np.float32), np.array([0.3, 0.7], np.float32)
    found = jax.jit(algorithm.predict)({"components": components, "shares": shares}, x)
    each = [
        softmax(x @ w + b, axis=1)
        for w, b in zip(components["weight"], components["intercept"], strict=True)
    ]
    np.testing.assert_allclose(np.exp(found), 0.3 * each[0] + 0.7 * each[1], rtol=1e-5)


def test_a_quantity_without_its_mark_is_not_taken_for_classes():
    plain = fedprior.network(LINEAR.init, LINEAR.apply)
    algorithm = fedprior.learning.discrete_mixture(plain)
    x = np.zeros((4, 3), np.float32)
    theta = jax.eval_shape(
        lambda: {"components": several(LINEAR, 2, 0.1, random.root(0)), "shares": jnp.ones(2)}
    )
    wording = r"^mixture: the model's output must be logits.*got \(4,\)\. One of a quantity has"
    with pytest.raises(ValueError, match=wording):
        jax.eval_shape(algorithm.predict, theta, x)


def test_a_private_channel_leaves_a_proper_population(federation):
    """Noise of 5 clips on messages of three components: floors hold, everything is finite."""
    algorithm = fedprior.learning.mixture_em(
        fedprior.models.logistic(4, 3),
        num_components=3,
        steps=fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=4)),
    )
    channel = fedprior.channels.CentralGaussian(clip=1.0, noise_multiplier=5.0)
    path, memories = states(algorithm, federation, 6, channel=channel)
    gamma = path[-1]["gamma"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((gamma, memories)))
    assert (gamma["scale"] >= np.float32(1e-3)).all()
    np.testing.assert_allclose(softmax(gamma["log_shares"]).sum(), 1, rtol=1e-6)
    assert np.abs(gamma["centers"]["weight"]).max() > 1  # the noise was there


NOISE = 12.0


@pytest.mark.parametrize(
    "factory",
    [
        fedprior.learning.discrete_mixture,
        pytest.param(fedprior.learning.clustered, marks=pytest.mark.evidence),
        pytest.param(fedprior.learning.mixture_em, marks=pytest.mark.evidence),
    ],
)
def test_a_floor_of_the_noise_keeps_centers_from_dividing_by_nothing(factory):
    """40 clients, a noise of 0.3 on the mean share: without the floor a center leaves for 1e3."""
    clients, m = two_kinds(40, size=10), 40
    floor = shares_under_noise(None, ChannelNoise(NOISE, 1.0, 1.0, m, 1))
    assert floor == {"share_floor": 0.3}
    algorithm = factory(
        fedprior.models.logistic(3), jitter=0.3, steps=fedprior.Steps(local_steps=2), **floor
    )
    channel = fedprior.channels.CentralGaussian(clip=1.0, noise_multiplier=NOISE)
    path, _ = states(algorithm, clients, 40, channel=channel)
    assert max(np.abs(state["gamma"]["centers"]["weight"]).max() for state in path) < 30
    shares = [softmax(state["gamma"]["log_shares"]) for state in path]
    assert min(share.min() for share in shares) > 0.1


def test_the_floor_of_the_noise_leaves_little_noise_alone():
    for num_clients, floor in ((10**6, 1e-3), (1000, 0.015), (10, 0.15)):
        noise = ChannelNoise(1.0, 0.5, 0.1, num_clients, 1)
        options = shares_under_noise(None, noise, num_components=4)
        assert options == {"share_floor": pytest.approx(floor)}
    own = shares_under_noise(None, noise, num_components=4, share_floor=0.2)
    assert own == {"share_floor": 0.2}


def two_kinds(number, *, size, seed=0):
    """Clients of two kinds with opposite logistic coefficients; no rows held out."""
    draws = np.random.default_rng(seed)
    own = np.repeat(np.arange(number), size)
    x = draws.normal(size=(len(own), 3)).astype(np.float32)
    kind = np.where(np.arange(number) % 2, 1, -1)[own]
    y = (kind * (2 * x[:, 0] + 1) + draws.logistic(size=len(own)) > 0).astype(np.int32)
    return fedprior.Federation.from_arrays(x, y, own, valid_share=0.0, test_share=0.0)


def test_full_curvature_bears_cohorts_of_a_tenth():
    """At a rate of K / m they come to where everybody leads; at rate 1 they stay near it."""
    clients, draws = two_kinds(40, size=10), np.random.default_rng(0)
    everyone = np.ones((80, 40), np.float32)
    some = draws.permuted(np.arange(40) < 4 * everyone, axis=1).astype(np.float32)
    data = jax.tree.map(jnp.asarray, clients.train.padded(np.arange(40)))

    def centers(rate, *cohorts):
        algorithm = fedprior.learning.discrete_mixture(
            fedprior.models.logistic(3), curvature="full", jitter=0.3, gamma_rate=rate
        )

        @jax.jit
        def play(present):
            def one_round(state, there):
                memory = algorithm.enroll(state, 0, random.root(0))
                local = jax.vmap(
                    lambda own: algorithm.local(state, memory, own, None)[0], (PADDED_AXES,)
                )
                total = jax.tree.map(lambda leaf: jnp.tensordot(there, leaf, 1), local(data))
                return algorithm.update(state, total), None

            last, _ = jax.lax.scan(one_round, algorithm.init(random.root(1)), present)
            return last["gamma"]["centers"]["weight"][..., 0]

        found = [np.asarray(play(present)) for present in cohorts]
        return [each[np.argsort(each[:, 0])] for each in found]

    wanted, near = centers(None, everyone, some)
    assert np.abs(near).max() < 30
    np.testing.assert_allclose(centers(0.1, some)[0], wanted, atol=0.5)


def test_a_private_channel_refuses_a_hessian(federation):
    algorithm = fedprior.learning.discrete_mixture(fedprior.models.logistic(4, 3), curvature="full")
    channel = fedprior.channels.CentralGaussian(clip=1.0, noise_multiplier=1.0)
    wording = "^Agreement: channel must be clear for discrete-mixture as it is set.*'diagonal'"
    with pytest.raises(fedprior.PrivacyError, match=wording):
        fedprior.simulate(algorithm, federation, rounds=1, channel=channel)


def test_the_noise_statistics_are_increments():
    """Relative to what the server knows: 0 on average at rest, short under a clip, exact at once.

    A clipped number of samples is found by doubling.
    """
    noise = Noise.of(LINEAR, None, "em")
    squares, sizes = np.array([50.0, 10.0, 30.0]), np.array([60.0, 5.0, 25.0])
    state = noise.init()

    def average(state):
        each = [noise.statistics(state, a, b) for a, b in zip(squares, sizes, strict=True)]
        return {name: np.mean([one[name] for one in each]) for name in each[0]}

    state = noise.maximize(state, average(state), 1.0)
    np.testing.assert_allclose(state["noise_variance"], squares.sum() / sizes.sum(), rtol=1e-5)
    np.testing.assert_allclose(state["num_samples"], sizes.mean(), rtol=1e-6)
    assert all(abs(value) < 1e-5 for value in average(state).values())
    clipped = noise.init()
    for _ in range(5):
        clipped = noise.maximize(clipped, {"residual": 0.0, "samples": 1.0}, 1.0)
    assert float(clipped["num_samples"]) == 32


@pytest.mark.parametrize(
    ("options", "error", "wording"),
    [
        ({"gamma_rate": 1.5}, ValueError, r"gaussian-em: gamma_rate must be in \(0, 1\], got 1.5"),
        ({"gamma_rate": 0.0}, ValueError, r"gaussian-em: gamma_rate must be in \(0, 1\], got 0.0"),
        (
            {"curvature": "ful"},
            ValueError,
            "curvature must be one of diagonal, full, got 'ful'. Did",
        ),
        (
            {"curvature_samples": 0},
            ValueError,
            "curvature_samples must be a whole number of at lea",
        ),
        ({"noise_variance": 0.0}, ValueError, "noise_variance must be a positive number, got 0.0"),
        ({"newcomer_steps": -1}, ValueError, "newcomer_steps must be a whole number of at least 0"),
        ({"scale_floor": 0.0}, ValueError, "Gaussian: scale_floor must be a positive number, got"),
    ],
)
def test_bad_options(options, error, wording):
    with pytest.raises(error, match=wording):
        fedprior.learning.gaussian_em(LINEAR, **options)


def test_what_em_cannot_do_is_refused():
    with pytest.raises(
        TypeError, match=r"^em: population must be one with an EM step: Gaussian, L"
    ):
        fedprior.em(LINEAR, fedprior.populations.Distillation())
    with pytest.raises(
        ValueError, match=r"^em: noise_variance must be None for a classifier, got 1"
    ):
        fedprior.em(
            fedprior.models.logistic(2),
            fedprior.populations.Gaussian(scale=1.0),
            noise_variance=1.0,
        )

"""The peer: the same AdaPeD and FedAvg rounds of LeNet-5 as a plain PyTorch loop over clients.

Nothing is computed twice: a step runs four forward and two backward passes, like ours.
"""

import time

import torch
import torch.nn.functional as F

SHAPES = (
    *((6, 1, 5, 5), (6,), (16, 6, 5, 5), (16,)),
    *((120, 256), (120,), (84, 120), (84,), (10, 84), (10,)),
)
RATE, WEIGHT_DECAY, PSI_RATE, PSI_FLOOR = 0.1, 1e-4, 0.03, 0.5


def forward(p, x):
    """Logits of LeNet-5."""
    x = F.max_pool2d(F.relu(F.conv2d(x, p[0], p[1])), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, p[2], p[3])), 2).flatten(1)
    x = F.relu(F.linear(x, p[4], p[5]))
    return F.linear(F.relu(F.linear(x, p[6], p[7])), p[8], p[9])


def descend(parameters, gradients):
    """One step of gradient descent with weight decay."""
    with torch.no_grad():
        moved = torch._foreach_mul([p.detach() for p in parameters], 1 - RATE * WEIGHT_DECAY)
        torch._foreach_add_(moved, gradients, alpha=-RATE)
        return moved


def free(parameters):
    """Leaves that gradients are taken for."""
    return [p.detach().requires_grad_(True) for p in parameters]


def divergence(mean, own):
    """Mean KL(mean || own) of log probabilities."""
    return (mean.exp() * (mean - own)).sum(1).mean()


def adaped_step(theta, mean, psi, x, y):
    """Theta, then the mean at the new theta, then psi at both."""
    theta, mean = free(theta), free(mean)
    log_mean = F.log_softmax(forward(mean, x), 1)  # kept for the mean's own step
    log_own = F.log_softmax(forward(theta, x), 1)
    loss = F.nll_loss(log_own, y) + divergence(log_mean.detach(), log_own) / (2 * psi)
    theta = descend(theta, torch.autograd.grad(loss, theta))
    with torch.no_grad():
        log_own = F.log_softmax(forward(theta, x), 1)
    penalty = divergence(log_mean, log_own) / (2 * psi)
    mean = descend(mean, torch.autograd.grad(penalty, mean))
    with torch.no_grad():
        apart = divergence(F.log_softmax(forward(mean, x), 1), log_own)
        psi = psi - PSI_RATE * (1 / (2 * psi) - apart / (2 * psi**2))
        return theta, mean, psi.clamp(min=PSI_FLOOR)


def fedavg_step(theta, x, y):
    """One step on the loss."""
    theta = free(theta)
    return descend(theta, torch.autograd.grad(F.cross_entropy(forward(theta, x), y), theta))


def adaped_round(thetas, mean, psi, batches):
    """A round: every client in turn; the server averages means and psis."""
    ends = []
    for client, (xs, ys) in enumerate(batches):
        own = (thetas[client], mean, psi)
        for x, y in zip(xs, ys, strict=True):
            own = adaped_step(*own, x, y)
        thetas[client] = own[0]
        ends.append(own[1:])
    mean = [torch.stack(parts).mean(0) for parts in zip(*(end[0] for end in ends), strict=True)]
    return thetas, mean, torch.stack([end[1] for end in ends]).mean()


def fedavg_round(mean, batches):
    """A round of FedAvg."""
    ends = []
    for xs, ys in batches:
        theta = mean
        for x, y in zip(xs, ys, strict=True):
            theta = fedavg_step(theta, x, y)
        ends.append(theta)
    return [torch.stack(parts).mean(0) for parts in zip(*ends, strict=True)]


def seconds(method, clients, batch, *, device, steps=10, repeats=5, tf32=False):
    """Seconds of each of `repeats` rounds, with the best of some layouts and thread counts."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    variants = [(2, True), (1, True), (2, False)] if device == "cpu" else [(2, False)]
    if clients >= 100:
        variants = variants[:1]
    runs = [_time(method, clients, batch, device, steps, repeats, *v) for v in variants]
    return min(runs, key=lambda times: sorted(times)[len(times) // 2])


def _time(method, clients, batch, device, steps, repeats, threads, channels_last):
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    layout = torch.channels_last if channels_last else torch.contiguous_format

    def model():
        made = [0.1 * torch.randn(shape, generator=generator) for shape in SHAPES]
        return [(p.to(memory_format=layout) if p.ndim == 4 else p).to(device) for p in made]

    batches = []
    for _ in range(clients):
        x = torch.rand(steps, batch, 1, 28, 28, generator=generator)
        y = torch.randint(0, 10, (steps, batch), generator=generator)
        images = [part.to(memory_format=layout).to(device) for part in x]
        batches.append((images, list(y.to(device))))
    mean, thetas = model(), [model() for _ in range(clients)]
    psi = torch.tensor(4.0, device=device)
    times = []
    for number in range(repeats + (clients < 100)):  # the first round warms up
        start = time.perf_counter()
        if method == "adaped":
            thetas, mean, psi = adaped_round(thetas, mean, psi, batches)
        else:
            mean = fedavg_round(mean, batches)
        if device != "cpu":
            torch.cuda.synchronize()
        if number or clients >= 100:
            times.append(time.perf_counter() - start)
    return times

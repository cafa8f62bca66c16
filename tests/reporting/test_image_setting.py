"""What a configuration makes of images: the network, and crops and flips."""

import pytest

from fedprior.exchange.facts import Facts
from fedprior.reporting.config import read
from fedprior.reporting.training import Study


def study(shape, *changes, num_classes=10):
    facts = Facts(num_clients=9, shape=shape, num_classes=num_classes, most_samples=20)
    return Study(read(None, changes), facts)


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((32, 32, 3), "cnn"),
        ((64, 48, 1), "cnn"),
        ((28, 28, 1), "lenet5"),
        ((8, 8, 1), "mlp"),
        ((224, 224, 3), "mlp"),
        ((32, 32, 12), "mlp"),
        ((3072,), "mlp"),
    ],
)
def test_the_network_by_the_shape(shape, name):
    assert study(shape).model.name == name


def test_a_quantity_is_not_predicted_by_a_classifier():
    assert study((32, 32, 3), num_classes=None).model.name == "mlp"
    for name in ("cnn", "resnet"):
        with pytest.raises(ValueError, match="The target is a quantity: choose linear or mlp"):
            _ = study((32, 32, 3), f"model.name={name}", num_classes=None).model


def test_a_resnet_of_the_given_depth():
    assert study((8, 8, 1), "model.name=resnet", "model.depth=14").model.name == "resnet"
    with pytest.raises(ValueError, match=r"resnet: depth must be 6 n \+ 2"):
        _ = study((8, 8, 1), "model.name=resnet", "model.depth=10").model
    with pytest.raises(ValueError, match=r"cnn: shape must be .* of at least 16 x 16"):
        _ = study((8, 8, 1), "model.name=cnn").model


def test_augmentation_is_for_images():
    batches = study((8, 8, 1), "training.augment=crop-flip").steps.batches
    assert (batches.augment, batches.size) == ("crop-flip", 10)
    whole = study((8, 8, 1), "training.augment=crop-flip", "training.batch_size=0").steps.batches
    assert (whole.augment, whole.size, whole.steps_per_epoch) == ("crop-flip", None, 60)
    assert study((8, 8, 1)).steps.batches.augment is None
    with pytest.raises(ValueError, match="config training: augment must be left out for samples"):
        _ = study((30,), "training.augment=crop-flip").steps

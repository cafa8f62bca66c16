"""One small deployment's folders, without anybody who plays."""

import pytest

from fedprior.deploy.app_folder import write_agreement
from fedprior.reporting import config as configs
from fedprior.sites.folder import make_site

SMALL = ('methods=["adamap"]', "model.name=logistic", "training.rounds=3")


@pytest.fixture
def made(tmp_path, federation):
    """`made(*changes)`: the sites' cards, their agreement and the folders that hold them."""

    def made(*changes, groups=((0, 1), (2, 3, 4)), **options):
        config = configs.read(None, [*SMALL, *changes])
        private = config.privacy.epsilon > 0
        cards = {
            f"site-{k}": make_site(tmp_path / f"site-{k}", federation.part(group), private=private)
            for k, group in enumerate(groups)
        }
        (tmp_path / "app").mkdir(exist_ok=True)
        document, roster = write_agreement(
            tmp_path / "app", config, cards, **{"deadline": 60.0, **options}
        )
        return document, roster, cards

    return made

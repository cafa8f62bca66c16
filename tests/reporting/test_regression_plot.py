"""The picture of regressions: names that can be read, kinds that can be told apart."""

import numpy as np
import pytest

from fedprior.regression.face.analysis import Analysis
from fedprior.reporting import figures, regression_plot
from fedprior.reporting.labels import place_names
from fedprior.reporting.regress_question import RegressQuestion
from fedprior.reporting.regression import regress

pytest.importorskip("matplotlib")


def table(path, groups, *, kinds=1, scale=(1.0, 1.0), name="group {}"):
    draws = np.random.default_rng(groups)
    lines = ["g,y,x"]
    for group in range(groups):
        theta = 5.0 * (group % kinds) + 0.4 * draws.standard_normal(2)
        for _ in range(8):
            x = draws.standard_normal()
            y = scale[0] * (theta[0] + theta[1] * x + 0.5 * draws.standard_normal())
            lines.append(f"{name.format(group)},{y},{scale[1] * x}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def analyzed(path, **options):
    asked = {"group": ("g",), "target": "y", "features": ("x",), **options}
    found = regress(RegressQuestion(file=path, **asked)).analysis
    assert isinstance(found, Analysis)
    return found


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draw the analysis and return its axes."""
    kept = []
    save = figures.save_figure
    monkeypatch.setattr(
        figures, "save_figure", lambda *words: (kept.append(words[0]), save(*words))
    )

    def draw(found):
        assert regression_plot.draw_coefficients(found, tmp_path / "p.png").stat().st_size > 0
        (axes,) = kept[-1].axes
        return axes

    return draw


def boxes(axes):
    """Where the names are, in pixels: (x0, y0, x1, y1)."""
    found = []
    axes.figure.draw_without_rendering()
    for text in axes.texts:
        middle = axes.transAxes.transform(text.xyann)
        extent = axes.figure.text(0, 0, text.get_text(), fontsize=7).get_window_extent()
        half = np.array([extent.width, extent.height]) / 2
        found.append(np.concatenate([middle - half, middle + half]))
    return found


LONG = "The General Hospital of Saint Somebody in a town, number {}"


@pytest.mark.parametrize("groups", [5, 20])
def test_names_cover_neither_each_other_nor_the_frame(tmp_path, drawn, groups):
    axes = drawn(analyzed(table(tmp_path / "t.csv", groups, name=LONG.replace(",", ""))))
    found, frame = boxes(axes), axes.get_window_extent()
    assert len(found) == groups
    assert len({text.get_text() for text in axes.texts}) == groups  # ends distinguish them
    for place, one in enumerate(found):
        assert frame.x0 - 1 <= one[0]
        assert one[2] <= frame.x1 + 1
        assert frame.y0 - 1 <= one[1]
        assert one[3] <= frame.y1 + 1
        for other in found[:place]:
            assert not ((one[:2] + 1 < other[2:]).all() and (other[:2] + 1 < one[2:]).all())


def test_a_name_without_room_is_left_out():
    from matplotlib.figure import Figure

    axes = Figure(figsize=(2, 2)).subplots()
    points = np.full((60, 2), 0.5)
    found = place_names(axes, points, ["a long name of a group"] * 60, others=points[:0])
    assert 0 < len(found) < 60


def test_many_groups_have_no_names(tmp_path, drawn):
    axes = drawn(analyzed(table(tmp_path / "t.csv", 210)))
    assert len(axes.texts) == 0
    assert axes.get_title(loc="left").startswith("200 of 210 groups")


@pytest.mark.parametrize("population", ["mixture", "discrete"])
def test_groups_of_a_mixture_have_the_look_of_their_kind(tmp_path, drawn, population):
    path = table(tmp_path / "t.csv", 24, kinds=2)
    found = analyzed(path, population=population, components="2")
    axes = drawn(found)
    kinds = [line for line in axes.lines if str(line.get_label()).startswith("personal, component")]
    assert (
        len({line.get_color() for line in kinds}) == len({line.get_marker() for line in kinds}) == 2
    )
    assert sum(len(line.get_xdata()) for line in kinds) == 24
    likeliest = found.fit.responsibilities.argmax(axis=1)
    np.testing.assert_allclose(kinds[0].get_xdata(), found.fit.theta[likeliest == 0, 0])
    (legend,) = axes.figure.legends
    wide = legend.get_window_extent()
    assert wide.x0 >= 0
    assert wide.x1 <= axes.figure.bbox.x1


def test_coefficients_of_very_different_scales(tmp_path, drawn):
    axes = drawn(analyzed(table(tmp_path / "t.csv", 30, scale=(1e6, 1e-4))))
    assert axes.yaxis.get_offset_text().get_text() == ""  # ticks say it all
    assert axes.get_ylim()[1] > 1e9


def test_one_coefficient_and_the_kinds_of_it(tmp_path, drawn):
    path = table(tmp_path / "t.csv", 24, kinds=2)
    one = drawn(analyzed(path, features=(), fixed=("x",)))
    assert "separate fit" in one.get_xlabel()
    two = analyzed(path, features=(), fixed=("x",), population="mixture", components="2")
    names = drawn(two).get_legend_handles_labels()[1]
    assert sum(name.startswith("personal, component") for name in names) == 2


def test_fits_outside_the_plot_are_counted(tmp_path, drawn):
    path = table(tmp_path / "t.csv", 40)
    with open(path, "a") as file:
        file.write("odd,1000,1\nodd,-1000,1.001\nodd,0,1.002\n")
    assert "outside the plot" in drawn(analyzed(path)).get_title(loc="left")

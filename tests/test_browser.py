"""The browser of the tests sees what it should: text, requests, complaints, and violations."""

import pytest

import browser as browsers

PAGE = """<!doctype html><html lang="en"><head><title>A page</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>@media (prefers-color-scheme: dark) {{ body {{ background: #111; color: #eee }} }}</style>
</head><body><main><h1>Clients</h1>{}</main></body></html>"""


def write(folder, body):
    page = folder / "page.html"
    page.write_text(PAGE.format(body))
    return page


@pytest.mark.parametrize("dark", [False, True])
def test_a_page_opens_from_disk(browser, tmp_path, dark):
    with browsers.visit(browser, write(tmp_path, "<p>Ada</p>"), width=320, dark=dark) as page:
        assert page.inner_text("p") == "Ada"
        assert page.evaluate("innerWidth") == 320
        color = page.evaluate("getComputedStyle(document.body).color")
        assert color == ("rgb(238, 238, 238)" if dark else "rgb(0, 0, 0)")
        assert browsers.violations(page) == []


def test_a_request_is_seen(browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text("<img src='https://example.org/dot.png' alt='dot'>")
    with (
        pytest.raises(AssertionError, match=r"requests: .*example\.org"),
        browsers.visit(browser, file),
    ):
        pass


def test_a_complaint_is_seen(browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text("<script>undefinedName()</script>")
    with (
        pytest.raises(AssertionError, match=r"complaints: .*undefinedName"),
        browsers.visit(browser, file),
    ):
        pass


def test_a_violation_is_seen(browser, tmp_path):
    body = "<p style='color: #ccc'>pale</p><input>"
    with browsers.visit(browser, write(tmp_path, body)) as page:
        found = browsers.violations(page)
    assert [line.partition(":")[0] for line in found] == ["color-contrast", "label"]


def test_a_program_that_is_named_must_exist(monkeypatch):
    monkeypatch.setenv("FEDPRIOR_CHROMIUM", "/nowhere/chromium")
    with pytest.raises(FileNotFoundError, match="FEDPRIOR_CHROMIUM must name a program"):
        browsers.program()


def test_without_chromium_there_is_none(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDPRIOR_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert browsers.program() is None

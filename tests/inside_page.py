"""What a page holds, its packed rows included, to be looked through by tests."""

import base64
import gzip
import json
import re

import numpy as np


def spec_of(html):
    """What the script of the page is told to draw."""
    return json.loads(_element(html, "spec"))


def tables_of(html):
    """The rows of the page: for each table its columns by key, as lists or arrays."""
    data = gzip.decompress(base64.b64decode(_element(html, "data")))
    return [_columns(table, data) for table in spec_of(html)["tables"]]


def everything(html):
    """All text of the page, with the packed rows written out."""
    tables = [
        {key: list(map(str, column)) for key, column in table.items()} for table in tables_of(html)
    ]
    return html + json.dumps(tables, ensure_ascii=False)


def _element(html, name):
    return re.search(rf'<script type="[^"]+" id="{name}">(.*?)</script>', html, re.S).group(1)


def _columns(table, data):
    found, steps = {}, {}
    order = sorted(table["columns"], key=lambda key: bool(table["columns"][key].get("near")))
    for key in order:
        one = table["columns"][key]
        own = data[one["start"] : one["start"] + one["length"]]
        if one["style"] == "text":
            found[key] = json.loads(own)
            continue
        if one["width"] == 8:
            found[key] = np.frombuffer(own, "<f8")
            continue
        planes = np.frombuffer(own, np.uint8).reshape(one["width"], table["size"])
        whole = np.ascontiguousarray(planes.T).view(f"<i{one['width']}").ravel().astype(float)
        missing = whole == -(2.0 ** (8 * one["width"] - 1))
        near = steps.get(one["near"], 0.0)
        steps[key] = np.where(missing, 0.0, whole + near)
        found[key] = np.where(missing, np.nan, steps[key] / 10.0 ** one["digits"])
    return {key: found[key] for key in table["columns"]}

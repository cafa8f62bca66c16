"""Answers as tests open them: the blocks of a page, the columns of a table."""

import duckdb


def blocks(page, kind):
    """The blocks of this kind, in all sections."""
    return [each for part in page.sections for each in part.blocks if isinstance(each, kind)]


def titles(page):
    """The titles of the sections."""
    return [section.title for section in page.sections]


def read_columns(path):
    """The columns of a table on disk, by name."""
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT * FROM '{path}'")
        names = [column[0] for column in found.description]
        cells = zip(*found.fetchall(), strict=True)
        return {name: list(own) for name, own in zip(names, cells, strict=True)}

"""Rows, wherever they stand, as plain dicts of JSON values (and bytes). Knows nothing of tasks.

Rows are numbered from 1 in messages, and a row of a JSON-lines file by its line.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from aworld_gym.errors import ConfigError, MissingDependencyError

Row = dict[str, Any]

SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
"""Of files that are read."""


def read_rows(source: Any) -> Iterator[tuple[str, Row]]:
    """Each row with the words that name it in messages (``row 3``, ``tasks.jsonl, line 3``).

    Args:
        source: the path of a JSON-lines, JSON (a list of objects) or Parquet file, an iterable of mappings, a pandas
            DataFrame, or a Hugging Face Dataset.

    Raises:
        ConfigError: the file cannot be read, or something in it is no row; the message says which.
        MissingDependencyError: a Parquet file, and pyarrow is not installed.
    """
    if isinstance(source, str | os.PathLike):
        yield from _of_file(Path(source))
    elif _is_frame(source):
        names = [str(name) for name in source.columns]
        double = [name for name, count in Counter(names).items() if count > 1]
        if double:
            raise ConfigError(f"the DataFrame has more than one column {double[0]!r}; rename or drop all but one")
        for number, values in enumerate(source.itertuples(index=False, name=None), 1):
            yield f"row {number}", {name: plain(value) for name, value in zip(names, values, strict=True)}
    elif isinstance(source, Mapping):
        splits = sorted(str(name) for name in source)
        raise ConfigError(
            f"rows must be a list of mappings, a file, a DataFrame or a Dataset, got a {type(source).__name__} with "
            f"{splits[:8]}; if these are splits, pass one of them, such as rows[{splits[0] if splits else '...'!r}]"
        )
    elif isinstance(source, Iterable):
        for number, row in enumerate(source, 1):
            yield f"row {number}", _row(row, f"row {number}")
    else:
        raise ConfigError(
            "rows must be a list of mappings, the path of a .jsonl or .parquet file, a DataFrame or a Dataset, "
            f"got {type(source).__name__}"
        )


def read_parquet(path: Path, columns: list[str] | None = None) -> Iterator[Row]:
    """The rows of a Parquet file, a batch at a time.

    Raises:
        MissingDependencyError: pyarrow is not installed.
        ConfigError: it is no Parquet file.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependencyError(
            f"{path} is a Parquet file, which needs the package pyarrow (pip install pyarrow): {error}"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024, columns=columns):
                for row in batch.to_pylist():
                    yield {str(name): plain(value) for name, value in row.items()}
    except (pyarrow.ArrowException, OSError) as error:
        raise ConfigError(f"cannot read {path} as Parquet: {str(error).splitlines()[0]}") from error


def plain(value: Any) -> Any:
    """The value in JSON's terms, bytes left as they are: numpy scalars and arrays unpacked, NaN and NaT as None.

    What is none of those is left as it is; whoever uses it says where it does not fit.
    """
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, str | bytes | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Decimal):  # of decimal columns: as it is written there
        return str(value)
    if type(value).__name__ == "NAType":  # pandas's "nothing"
        return None
    if hasattr(value, "isoformat"):  # dates and times; pandas's "no time" is one that is unequal to itself
        return value.isoformat() if value == value else None
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        return plain(value.tolist())
    return value


def _of_file(path: Path) -> Iterator[tuple[str, Row]]:
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            f"a file of rows ends in one of {', '.join(SUFFIXES)}, got {str(path)!r}; "
            "what pandas reads (CSV, Excel, ...) can be passed as a DataFrame"
        )
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"the file {str(path)!r} may not be read")
    if path.suffix == ".parquet":
        for number, row in enumerate(read_parquet(path), 1):
            yield f"{path.name}, row {number}", row
    elif path.suffix == ".json":
        data = _json(path.read_bytes(), str(path))
        if not isinstance(data, list):
            raise ConfigError(f"{path} must hold a list of objects, got {type(data).__name__}")
        for number, row in enumerate(data, 1):
            yield f"{path.name}, row {number}", _row(row, f"{path.name}, row {number}")
    else:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                where = f"{path.name}, line {number}"
                if line.strip():
                    yield where, _row(_json(line, where), where)


def _json(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise ConfigError(f"{where} is not valid JSON: {error}") from error


def _row(row: Any, where: str) -> Row:
    if not isinstance(row, Mapping):
        raise ConfigError(f"{where} must be a mapping of column names to values, got {type(row).__name__}: {row!r:.80}")
    try:
        return {str(name): plain(value) for name, value in row.items()}
    except RecursionError as error:
        raise ConfigError(f"{where} holds lists or objects in each other, too deep to be read") from error


def _is_frame(source: Any) -> bool:
    return hasattr(source, "itertuples") and hasattr(source, "columns")

#!/usr/bin/env python3
"""Reads Parquet files of vectors that ferry writes with pyarrow, pandas and datasets, and compares each number.

    python tests/golden/check_vectors.py BUILD/tests/test_vectors_file

test_vectors_file holds the digests of these files.
"""
import pathlib
import subprocess
import sys
import tempfile

import datasets
import numpy
import pandas
import pyarrow.parquet

FILES = [(3, 5), (20000, 48), (70000, 257), (300, 1), (3, 300000)]


def main():
    for rows, width in FILES:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "vectors.parquet"
            subprocess.run([sys.argv[1], path, str(rows), str(width)], check=True)
            wanted = ((numpy.arange(rows * width, dtype=numpy.int64) * 37 % 1009 - 504) / 64).astype(numpy.float32).reshape(rows, width)
            table = pyarrow.parquet.read_table(path)
            assert str(table.schema) == "embedding: list<element: float>\n  child 0, element: float", table.schema
            column = table["embedding"].combine_chunks()
            assert (column.flatten().to_numpy() == wanted.reshape(-1)).all() and len(column) == rows
            assert (numpy.diff(column.offsets.to_numpy()) == width).all()
            frame = pandas.read_parquet(path)
            assert list(frame.columns) == ["embedding"] and (numpy.stack(frame["embedding"]) == wanted).all()
            data = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=folder)
            some = data.with_format("numpy")[-3:]["embedding"]
            assert data.num_rows == rows and (some == wanted[-3:]).all()
            groups = pyarrow.parquet.ParquetFile(path).metadata.num_row_groups
            print(f"{rows} rows of {width} numbers: {groups} groups of rows, the same")


main()

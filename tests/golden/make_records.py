#!/usr/bin/env python3
"""Writes tests/golden/records/: small data files of each kind, and NAME.expected.jsonl, the records that each holds.

    python3 tests/golden/make_records.py        # needs pyarrow and zstandard

Parquet: lists, structs, maps and nulls, both page versions, each compression, dictionary, plain and delta encodings, several
row groups and pages."""
import csv, gzip, io, json, os
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "records")


def put(name, data, expected):
    open(os.path.join(HERE, name), "wb").write(data)
    with open(os.path.join(HERE, name + ".expected.jsonl"), "w") as f:
        for row in expected:
            f.write(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n")


def parquet(name, table, expected, **options):
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    put(name, out.getvalue(), expected)


def chats():
    rows = []
    for i in range(12):
        messages = [{"role": "user", "content": f"Question {i}? ünï"}, {"role": "assistant", "content": "Answer " * (i + 1)}]
        if i % 3 == 0:
            messages.insert(0, {"role": "system", "content": "Be brief."})
        rows.append({"id": i, "messages": None if i == 7 else messages[: len(messages) if i != 5 else 0],
                     "tags": [None, "x"] if i % 2 else [], "score": None if i == 3 else i / 4,
                     "extra": {"weights": [[1, 2], [], None][: i % 4], "ok": i % 2 == 0}})
    return rows


def main():
    os.makedirs(HERE, exist_ok=True)
    rows = chats()
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("messages", pa.list_(message)), ("tags", pa.list_(pa.string())),
                        ("score", pa.float64()),
                        ("extra", pa.struct([("weights", pa.list_(pa.list_(pa.int32()))), ("ok", pa.bool_())]))])
    table = pa.Table.from_pylist(rows, schema=schema)
    for compression in ("none", "snappy", "gzip", "zstd"):
        parquet(f"chats-{compression}.parquet", table, rows, compression=compression, row_group_size=5, data_page_size=64)
    parquet("chats-v2.parquet", table, rows, compression="zstd", data_page_version="2.0", use_dictionary=False,
            data_page_size=64)
    parquet("chats-old-lists.parquet", table, rows, use_compliant_nested_type=False)
    texts = [{"text": f"shared prefix {i // 3} and tail {i}", "n": i * i - 50, "price": float(Decimal(i) / 100), "big": 2**40 + i,
              "map": {"a": i, "b": None}} for i in range(40)]
    schema = pa.schema([("text", pa.string()), ("n", pa.int32()), ("price", pa.decimal128(7, 2)), ("big", pa.int64()),
                        ("map", pa.map_(pa.string(), pa.int32()))])
    table = pa.Table.from_pylist([{**r, "price": Decimal(i) / 100, "map": list(r["map"].items())} for i, r in enumerate(texts)],
                                 schema=schema)
    parquet("texts-delta.parquet", table, texts, use_dictionary=False,
            column_encoding={"text": "DELTA_BYTE_ARRAY", "n": "DELTA_BINARY_PACKED", "big": "DELTA_BINARY_PACKED",
                             "map.key_value.key": "DELTA_LENGTH_BYTE_ARRAY"})
    alpaca = [{"instruction": f"Say {i}", "input": "" if i % 2 else 'with "quotes", commas\nand lines', "output": f"{i}"} for i in range(6)]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(alpaca[0]), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(alpaca)
    text = out.getvalue().encode()
    put("alpaca.csv", b"\xef\xbb\xbf" + text, alpaca)
    put("alpaca.csv.gz", gzip.compress(text, mtime=0), alpaca)
    put("semicolons.csv", b"instruction;output\nSay 1;1\n\nSay 2;\"2;2\"", [{"instruction": "Say 1", "output": "1"},
                                                                          {"instruction": "Say 2", "output": "2;2"}])
    put("tabs.tsv", b"text\tn\nA, b\t1\n\"q\"\t2\n", [{"text": "A, b", "n": "1"}, {"text": "q", "n": "2"}])
    lines = b"".join(json.dumps(r).encode() + b"\n" for r in alpaca)
    half = lines.index(b"\n") + 1
    put("members.jsonl.gz", gzip.compress(lines[:half], mtime=0) + gzip.compress(lines[half:], mtime=0), alpaca)
    pack = zstandard.ZstdCompressor().compress
    put("frames.jsonl.zst", pack(lines[:half]) + pack(lines[half:]), alpaca)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Differential test of data files: random tables written by pyarrow (Parquet) and Python's csv, read by ferry.

    python3 tests/golden/check_records.py BUILD/tests/records_json [--seed 1] [--files 200]

Needs pyarrow. Each file has random types (nested lists, structs and maps), nulls, encodings, page sizes, compression and page
versions. Every record must be equal; damaged copies must end in an error or in records, never in a crash."""
import argparse, csv, gzip, io, json, math, os, random, re, struct, subprocess, sys, tempfile

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = ["", "a", "Hello, world", "line\nbreak", "quote \" inside", "ümläut", "日本語", "\U0001f600", "x" * 300, "tab\there"]


def random_type(rng, depth=0):
    kinds = ["string", "large_string", "int64", "int32", "int8", "uint32", "uint64", "json", "bool", "float", "double", "half", "decimal", "dict"]
    if depth: # pyarrow makes no nested arrays of JSON; make_tool_rows.py has some
        kinds.remove("json")
    if depth < 3:
        kinds += ["list", "struct", "list", "struct", "map", "large_list"]
    kind = rng.choice(kinds)
    if kind in ("list", "large_list"):
        return getattr(pa, "list_" if kind == "list" else "large_list")(random_type(rng, depth + 1))
    if kind == "struct":
        return pa.struct([pa.field(f"f{i}", random_type(rng, depth + 1), nullable=rng.random() < 0.8) for i in range(rng.randint(1, 3))])
    if kind == "map":
        return pa.map_(pa.string(), random_type(rng, depth + 1))
    if kind == "dict":
        return pa.string() if depth else pa.dictionary(pa.int32(), pa.string())
    return {"string": pa.string(), "large_string": pa.large_string(), "int64": pa.int64(), "int32": pa.int32(), "int8": pa.int8(),
            "uint32": pa.uint32(), "uint64": pa.uint64(), "json": pa.json_(), "bool": pa.bool_(), "float": pa.float32(), "double": pa.float64(), "half": pa.float16(),
            "decimal": pa.decimal128(9, 2)}[kind]


def random_value(rng, t, nullable=True):
    if nullable and rng.random() < 0.15:
        return None
    if isinstance(t, pa.JsonType):
        return json.dumps(rng.choice([{"a": None, "b": [1, None]}, [], "text", 5, None, 10 ** 30, {"c": {"d": None}}]))
    if pa.types.is_dictionary(t) or pa.types.is_string(t) or pa.types.is_large_string(t):
        return rng.choice(WORDS) + (str(rng.randint(0, 9)) if rng.random() < 0.5 else "")
    if pa.types.is_boolean(t):
        return rng.random() < 0.5
    if pa.types.is_integer(t):
        bits = t.bit_width
        low, high = (0, 2**bits - 1) if str(t).startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return rng.choice([low, high, 0, rng.randint(low, high), max(low, min(high, rng.randint(-5, 100)))])
    if pa.types.is_decimal(t):
        import decimal
        return decimal.Decimal(rng.randint(-9999999, 9999999)).scaleb(-2)
    if pa.types.is_float16(t):
        import numpy
        return numpy.float16(rng.choice([0.0, 1.5, -2.25, 65504.0, 6e-8]))
    if pa.types.is_floating(t):
        return rng.choice([0.0, -1.5, 1e10, 0.1, float("inf"), rng.random()])
    if pa.types.is_map(t):
        keys = rng.sample(["k1", "k2", "key three", "k4"], rng.randint(0, 3))
        return [(k, random_value(rng, t.item_type)) for k in keys]
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return [random_value(rng, t.value_type) for _ in range(rng.choice([0, 1, 2, 5]))]
    return {f.name: random_value(rng, f.type, f.nullable) for f in t}


def plain(v, t):
    """What ferry should make of a value."""
    if v is None:
        return None
    if isinstance(t, pa.JsonType):
        return json.loads(v)
    if pa.types.is_map(t):
        return {k: plain(x, t.item_type) for k, x in v}
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return [plain(x, t.value_type) for x in v]
    if pa.types.is_struct(t):
        members = {f.name: plain(v[f.name], f.type) for f in t}
        return {k: x for k, x in members.items() if x is not None} # Arrow's keys of other rows
    if pa.types.is_float32(t):
        v = struct.unpack("f", struct.pack("f", v))[0]
    if pa.types.is_floating(t) or pa.types.is_decimal(t):
        return float(v) if math.isfinite(float(v)) else None
    return v


def integer(members):
    """ferry's form of integers beyond 64 bits."""
    key = next(iter(members), "")
    return int(members[key]) if len(members) == 1 and re.fullmatch("integer-[0-9a-f]{32}", key) else members


def run(program, path):
    out = subprocess.run([program, path], capture_output=True, timeout=120)
    if out.returncode not in (0, 1):
        raise SystemExit(f"{path}: the program ended with {out.returncode}: {out.stderr.decode(errors='replace')[-2000:]}")
    return out.returncode, [json.loads(line, object_hook=integer) for line in out.stdout.splitlines()], out.stderr.decode(errors="replace")


def compare(path, rc, got, wanted, err):
    if rc:
        raise SystemExit(f"{path}: {err}")
    if len(got) != len(wanted):
        raise SystemExit(f"{path}: {len(got)} records, {len(wanted)} wanted")
    for i, (a, b) in enumerate(zip(got, wanted)):
        if a != b:
            raise SystemExit(f"{path}: record {i}:\n  got    {a}\n  wanted {b}")


def make_array(values, t):
    if isinstance(t, pa.JsonType):
        return pa.ExtensionArray.from_storage(t, pa.array(values, type=pa.string()))
    return pa.array(values, type=t)


def one_parquet(rng, program, folder, number):
    fields = [pa.field(f"c{i}", random_type(rng), nullable=True) for i in range(rng.randint(1, 5))]
    count = rng.choice([0, 1, 7, 100, 1000])
    columns = [[random_value(rng, f.type) for _ in range(count)] for f in fields]
    table = pa.table([make_array(c, f.type) for c, f in zip(columns, fields)], schema=pa.schema(fields))
    options = dict(compression=rng.choice(["none", "snappy", "gzip", "zstd"]), data_page_version=rng.choice(["1.0", "2.0"]),
                   row_group_size=rng.choice([3, 50, 100000]), data_page_size=rng.choice([16, 200, 1 << 20]),
                   use_dictionary=rng.random() < 0.5, version=rng.choice(["1.0", "2.4", "2.6"]),
                   use_compliant_nested_type=rng.random() < 0.7)
    if not options["use_dictionary"] and rng.random() < 0.6:
        encoding = {}
        for f in fields:
            if pa.types.is_string(f.type) or pa.types.is_large_string(f.type):
                encoding[f.name] = rng.choice(["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
            elif f.type in (pa.int32(), pa.int64()):
                encoding[f.name] = rng.choice(["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"])
            elif f.type in (pa.float32(), pa.float64()):
                encoding[f.name] = rng.choice(["PLAIN", "BYTE_STREAM_SPLIT"])
            elif f.type == pa.bool_():
                encoding[f.name] = rng.choice(["PLAIN", "RLE"])
        options["column_encoding"] = encoding or None
    path = os.path.join(folder, f"{number}.parquet")
    pq.write_table(table, path, **options)
    wanted = [{f.name: plain(columns[i][row], f.type) for i, f in enumerate(fields)} for row in range(count)]
    rc, got, err = run(program, path)
    compare(f"{path} {options} {table.schema}", rc, got, wanted, err)
    return path


def one_csv(rng, program, folder, number):
    separator, suffix = rng.choice([(",", ".csv"), (";", ".csv"), ("\t", ".tsv")])
    names = [f"col {i}" for i in range(rng.randint(2, 5))]
    rows = [[rng.choice(WORDS) for _ in names] for _ in range(rng.choice([0, 1, 50]))]
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator=rng.choice(["\n", "\r\n"]),
                        quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    writer.writerow(names)
    writer.writerows(rows)
    data = text.getvalue().encode()
    if rng.random() < 0.3:
        data = b"\xef\xbb\xbf" + data
    path = os.path.join(folder, f"{number}{suffix}")
    if rng.random() < 0.3:
        path += ".gz"
        data = gzip.compress(data)
    open(path, "wb").write(data)
    rc, got, err = run(program, path)
    compare(path, rc, got, [dict(zip(names, row)) for row in rows], err)
    return path


def damage(rng, program, path):
    data = bytearray(open(path, "rb").read())
    for _ in range(rng.randint(1, 4)):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.3:
        data = data[: rng.randrange(len(data) + 1)]
    bad = path.replace("/", "/bad-") if "/" not in path else os.path.join(os.path.dirname(path), "bad-" + os.path.basename(path))
    open(bad, "wb").write(data)
    run(program, bad)
    os.remove(bad)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=200)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.files):
            path = (one_csv if rng.random() < 0.25 else one_parquet)(rng, args.program, folder, number)
            for _ in range(5):
                damage(rng, args.program, path)
            os.remove(path)
    print(f"{args.files} files, seed {args.seed}: all records equal, no damaged copy crashed")


if __name__ == "__main__":
    main()

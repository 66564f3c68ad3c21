#!/usr/bin/env python3
"""Largest errors of each golden model, as Markdown tables: golden_errors.py BUILD >TABLES

Runs the tests that compare with ../shared/golden (FERRY_SHARED) and collects what they compare: FERRY_GOLDEN_ERRORS
names a file where tests/golden_reference.h adds a line for each number. A row is a model, a column a comparison, a cell the largest
error; its bound is in the column's head, or in the cell where it differs by model. Exit code 1 if a test fails.
"""
import datetime
import os
import re
import subprocess
import sys
import tempfile

TESTS = ["test_golden", "test_golden_lora", "test_golden_dpo", "test_run_embedding", "test_run_classification"]
FP32, BF16, OTHERS = "Whole models in fp32", "Whole models in bf16", "Adapters, quantized bases, pairs, embedders, classifiers, in fp32"


def place(test, model, part, what):
    """(table, row, column) of a comparison."""
    what = what.split(": ")[-1]  # the name of a run comes before
    if part == "steps in bf16":
        return BF16, model, what + ("" if "fp64" in what else " from torch's bf16")
    if test == "test_golden" and part == "adapter":
        steps = what in ("loss", "grad_norm")
        return OTHERS, model + "/lora", "loss" if what == "lora" else "steps: " + what if steps else what
    if test == "test_golden_dpo" and what not in ("gradient", "grad_norm"):
        return OTHERS, model, "losses, rewards of pairs"
    if part == "steps in fp32":
        column = "steps: " + what if what in ("loss", "grad_norm") else what
    else:
        column = {"a token's loss": "a token's loss", "gradient": "gradient", "ids": "text"}.get(what, "loss")
    return FP32 if test == "test_golden" else OTHERS, model, column


def collect(build):
    """{table: {model: {column: (error, bound)}}}, the worst by its bound, and whether a test failed."""
    tables, failed = {FP32: {}, BF16: {}, OTHERS: {}}, False
    for test in TESTS:
        with tempfile.TemporaryDirectory() as tmp:
            path = os.path.join(tmp, "errors")
            open(path, "w").close()
            done = subprocess.run([os.path.join(build, "tests", test)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={**os.environ, "FERRY_GOLDEN_ERRORS": path})
            if done.returncode:
                print("%s failed: %s" % (test, done.stdout[-1000:]), file=sys.stderr)
                failed = True
            for line in open(path):
                model, part, what, error, bound = line.rstrip("\n").split("\t")
                table, row, column = place(test, model, part, what)
                cells, new = tables[table].setdefault(row, {}), (float(error), float(bound))
                old = cells.setdefault(column, new)
                if not new[0] * (old[1] or 1) <= old[0] * (new[1] or 1) and old[0] == old[0]:  # NaN is the worst
                    cells[column] = new
    return tables, failed


def number(x):
    return re.sub(r"e-0?", "e-", "%.1e" % x) if x else "0"


def print_table(title, rows):
    columns = list(dict.fromkeys(c for cells in rows.values() for c in cells))
    bounds = {c: {cells[c][1] for cells in rows.values() if c in cells} for c in columns}

    def cell(cells, c):
        if c not in cells:
            return ""
        error, bound = cells[c]
        if c == "text":
            return "other" if error else "equal"
        return number(error) + ("" if len(bounds[c]) == 1 else " of " + number(bound))

    heads = [c + (", " + number(min(bounds[c])) if len(bounds[c]) == 1 and c != "text" else "") for c in columns]
    print("\n## %s\n\n| model | %s |\n|%s" % (title, " | ".join(heads), "---|" * (len(columns) + 1)))
    for model, cells in rows.items():
        print("| %s | %s |" % (model, " | ".join(cell(cells, c) for c in columns)))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    print("%s, %s." % (datetime.date.today(), cpu))
    tables, failed = collect(sys.argv[1])
    for title, rows in tables.items():
        print_table(title, rows)
    return failed


if __name__ == "__main__":
    sys.exit(main())

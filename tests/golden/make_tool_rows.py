#!/usr/bin/env python3
"""Writes the rows of chats with tools that `datasets` makes, to tests/golden/tool_rows/: plain structs, where Arrow puts the
keys of other rows as null, and columns of JSON.

    python3 tests/golden/make_tool_rows.py      # needs datasets 5 and pyarrow 20 or newer

Each NAME.parquet and NAME.jsonl holds the same rows; rows.json holds what they mean."""
import json, os

import datasets
from datasets import Dataset, Features, Json, List, Value

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tool_rows")


def tool(name, **properties):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


def chat(question, name, arguments):
    return [{"role": "user", "content": question},
            {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]},
            {"role": "tool", "content": "ok"}, {"role": "assistant", "content": "done"}]


def main():
    os.makedirs(HERE, exist_ok=True)
    weather = tool("weather", city={"type": "string"})
    clock = tool("clock", zone={"type": "string", "enum": ["UTC", "CET"]}, dst={"type": "boolean"})
    rows = [{"messages": chat("Weather?", "weather", {"city": "Paris"}), "tools": [weather, clock]},
            {"messages": chat("Time?", "clock", {"zone": "UTC", "dst": False}), "tools": [weather, clock]},
            {"messages": chat("Now?", "clock", {}), "tools": [clock]}]
    json.dump(rows, open(os.path.join(HERE, "rows.json"), "w"), indent=1)
    structs = Dataset.from_list(rows)
    structs.to_parquet(os.path.join(HERE, "structs.parquet"))
    structs.to_json(os.path.join(HERE, "structs.jsonl"))
    message = {"role": Value("string"), "content": Value("string"),
               "tool_calls": List({"type": Value("string"), "function": {"name": Value("string"), "arguments": Json()}})}
    for name, features in (("json-arguments", {"messages": List(message), "tools": List(Json())}),
                           ("json-messages", {"messages": List(Json()), "tools": List(Json())}),
                           ("json-columns", {"messages": Json(), "tools": Json()})):
        Dataset.from_list(rows, features=Features(features)).to_parquet(os.path.join(HERE, name + ".parquet"))
    texts = [{"messages": [json.dumps(m) for m in r["messages"]], "tools": [json.dumps(t) for t in r["tools"]]} for r in rows]
    with open(os.path.join(HERE, "json-texts.jsonl"), "w") as f:
        for row in texts:
            f.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    print("datasets", datasets.__version__)
    main()

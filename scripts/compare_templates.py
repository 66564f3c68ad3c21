#!/usr/bin/env python3
"""Random chat templates over random chats: our renderer beside transformers' own.

    compare_templates.py PROGRAM [--seed N] [--seconds S] [--show N] [--numbers]

With --numbers, every filter, test, method and function gets extreme numbers instead.

PROGRAM is build/tests/template_lines. Needs transformers (its renderer is the oracle). Prints every template whose text,
generation spans or failure differ, and one line of counts at the end; exits 1 when there was a difference.
"""
import argparse
import json
import random
import re
import resource
import signal
import subprocess
import sys
import time
import warnings

from transformers.utils import chat_template_utils as oracle

warnings.simplefilter("ignore")
WORDS = ["", " ", "a", "Hello", "hello world", "  padded \n", "x\ny", "line\n\n  two\n", "Ünïcödé ß", "日本語", "😀!",
         "<think>\nhm\n</think>\n\nyes", "a,b,,c", "42", "-3.5", "it's \"q\"", "\t tab\u00a0", "tool", "user", "UPPER",
         "back\\slash", "<b>&amp;</b>", "\x1c odd \x85"]
NAMES = ["messages", "tools", "message", "content", "x", "y", "ns", "flag", "number", "words", "loop", "nothing", "d"]
ATTRIBUTES = ["role", "content", "name", "tool_calls", "missing", "first", "last", "index", "index0", "length", "x", "k"]
FILTERS = ["trim", "length", "upper", "lower", "list", "first", "last", "string", "capitalize", "title", "reverse", "unique",
           "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "join", "join(', ')", "join('|', attribute='role')", "items",
           "default('none')", "default('n', true)", "d(3)", "int", "float", "abs", "round", "round(1)", "sort", "dictsort",
           "map('upper')", "map(attribute='content')", "map(attribute='role', default='?')", "map('string')", "count", "safe",
           "select('string')", "reject('none')", "select", "selectattr('content')", "selectattr('role', 'equalto', 'user')",
           "rejectattr('role', 'in', ['user', 'tool'])", "replace('a', 'b')", "replace('l', '', 1)", "indent", "indent(2, true)",
           "truncate(5)", "wordcount", "center(9)", "sum", "max", "min", "batch(2)", "slice(2)", "e", "urlencode", "abs", "list",
           "sort(reverse=true)", "sort(attribute='content')", "unique(attribute='role')", "tojson(separators=(',', ':'))",
           "string", "trim('x')", "format('a')", "attr('upper')", "tojson(ensure_ascii=true)", "map('length')"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean",
         "true", "false", "odd", "even", "divisibleby(3)", "eq('user')", "equalto 3", "in ['a', 'user', 3]", "sameas(true)",
         "upper", "lower", "callable", "gt 1", "ne ''", "lt(5)", "filter", "test"]
METHODS = ["strip()", "lstrip()", "rstrip('\\n')", "split(',')", "split()", "split(' ', 1)", "rsplit(',', 1)", "upper()", "lower()",
           "startswith('<')", "endswith('o')", "replace('a', 'e')", "title()", "capitalize()", "find('l')", "count('l')",
           "splitlines()", "items()", "keys()", "values()", "get('role')", "get('z', 1)", "isdigit()", "join(['a', 'b'])",
           "startswith(('<', 'H'))", "rfind('l')", "partition(',')", "format(1, 2)", "index('a')", "zfill(4)", "append(1)", "swapcase()",
           "lstrip('<think>')", "isspace()", "removeprefix('He')", "ljust(8)", "isupper()"]


class Maker:
    def __init__(self, rng):
        self.r = rng
        self.macros = set()

    def string(self):
        w = self.r.choice(WORDS)
        q = self.r.choice("'\"")
        w = w.replace("\\", "\\\\").replace(q, "\\" + q)
        return q + (w if self.r.random() < 0.3 else w.replace("\n", "\\n")) + q

    def atom(self):
        c = self.r.random()
        if c < 0.30:
            return self.r.choice(NAMES)
        if c < 0.45:
            return self.string()
        if c < 0.60:
            return str(self.r.choice([0, 1, 2, 3, -1, 7, 10, 2.5, 0.1, 1e20, 100, "1_000"]))
        if c < 0.68:
            return self.r.choice(["true", "false", "none", "True", "None"])
        if c < 0.80:
            return self.r.choice(["messages[0]", "messages[-1]", "message", "loop"]) + "." + self.r.choice(ATTRIBUTES)
        if c < 0.85:
            return "messages[%d]['%s']" % (self.r.choice([0, 1, -1, 9]), self.r.choice(ATTRIBUTES))
        if c < 0.90:
            return "[" + ", ".join(self.expr(3) for _ in range(self.r.randrange(4))) + "]"
        if c < 0.93:
            return "{" + ", ".join(self.string() + ": " + self.expr(3) for _ in range(self.r.randrange(3))) + "}"
        if c < 0.96:
            return "(" + self.expr(3) + ", " + self.expr(3) + ")"
        return "range(%s)" % self.r.choice(["3", "1, 4", "5, 0, -2"])

    def expr(self, depth=0):
        """Anything; mostly something that has a meaning."""
        if self.r.random() < 0.93:
            return self.typed(self.r.choice("ttttnlbd"), depth)
        return self.wild(depth)

    def typed(self, kind, depth):
        """t: a text, n: a number, l: a list, b: a truth, d: a dict."""
        r, deep = self.r, depth > 3
        k = lambda kind: self.typed(kind, depth + 1)
        if r.random() < 0.004:
            return self.wild(depth + 1)
        if kind == "t":
            return r.choice([
                lambda: self.string(), lambda: "(messages | first).role" if r.random() < 0.1 else "message.role", lambda: "message.role", lambda: "bos_token", lambda: "content",
                lambda: "message['content'] | string"] + ([] if deep else [
                lambda: "(%s).%s" % (k("t"), r.choice([m for m in METHODS if m[0] in "slrutcj" and "split" not in m and "startswith" not in m
                                                       and "count" not in m and "is" != m[:2] and "items" not in m])),
                lambda: "%s | %s" % (k("t"), r.choice(["trim", "upper", "lower", "capitalize", "title", "replace('a', 'b')", "tojson", "string",
                                                       "indent", "indent(2, true)", "truncate(5)", "reverse", "first", "last", "default('n', true)"])),
                lambda: "%s ~ %s" % (k("t"), self.expr(depth + 1)), lambda: "(%s) + (%s)" % (k("t"), k("t")),
                lambda: "(%s) if %s else (%s)" % (k("t"), k("b"), k("t")), lambda: "(%s)[%s:%s]" % (k("t"), r.choice(["", "1", "-3"]), r.choice(["", "2", "-1"])),
                lambda: "%s | join('%s')" % (k("l"), r.choice(["", ", "])), lambda: "%s | tojson" % self.expr(depth + 1), lambda: "(%s).split(',')[0]" % k("t"),
                lambda: "'%s' | format(%s)" % (r.choice(["%s", "<%r>", "%5s|"]), k("t")), lambda: "'%%d %%.2f' | format(%s, %s)" % (k("n"), k("n")),
                lambda: "'{} {:>6}'.format(%s, %s)" % (k("t"), k("t")), lambda: "%s * 2" % self.string()]))()
        if kind == "n":
            return r.choice([
                lambda: str(r.choice([0, 1, 2, 3, 7, 10, 2.5, 0.1])), lambda: "number", lambda: "ns.x" if r.random() < 0.3 else "3"] + ([] if deep else [
                lambda: "(%s) %s (%s)" % (k("n"), r.choice("+-*"), k("n")), lambda: "(%s) %s %s" % (k("n"), r.choice(["/", "//", "%"]), r.choice(["2", "-3", "0.5"])),
                lambda: "%s | length" % k(r.choice("tld")), lambda: "-%s" % k("n"), lambda: "%s | int" % k(r.choice("tn")), lambda: "%s | float" % k(r.choice("tn")),
                lambda: "(%s) | round(%s)" % (k("n"), r.choice(["", "1", "0, 'floor'", "1, 'ceil'"])), lambda: "(%s) | abs" % k("n"),
                lambda: "(%s).find(%s)" % (k("t"), k("t")), lambda: "(%s).count('l')" % k("t")]))()
        if kind == "l":
            return r.choice([
                lambda: "messages", lambda: "words", lambda: "messages[1:]", lambda: "['a', 'b', 'A', '']", lambda: "[3, 1, 2]", lambda: "range(4) | list"] + ([] if deep else [
                lambda: "(%s)[%s:%s%s]" % (k("l"), r.choice(["", "1", "-2"]), r.choice(["", "2", "-1"]), r.choice(["", ":-1", ":2"])),
                lambda: "(%s).split(%s)" % (k("t"), r.choice(["", "','", "' ', 1"])), lambda: "(%s).splitlines()" % k("t"), lambda: "[%s, %s]" % (k("t"), k("t")),
                lambda: "(%s | list) + (%s | list)" % (k("l"), k("l")), lambda: "messages | selectattr('role', 'equalto', 'user') | list",
                lambda: "messages | map(attribute='role') | list", lambda: "messages | rejectattr('content', 'none') | list",
                lambda: "words | map('%s') | list" % r.choice(["upper", "trim", "length", "tojson"]), lambda: "words | %s | list" % r.choice(
                    ["sort", "unique", "reverse", "select", "sort(reverse=true)", "sort(case_sensitive=true)", "reject('eq', 'a')", "batch(2)", "batch(2, 'x')", "slice(3)"]),
                lambda: "(%s).items() | list" % k("d"), lambda: "%s | dictsort" % k("d"), lambda: "%s | items | list" % k("d"), lambda: "%s | list" % k("t"),
                lambda: "(%s).rsplit(%s)" % (k("t"), r.choice(["','", "None, 1", "' ', 1"])), lambda: "messages | groupby('role') | map('first') | list"]))()
        if kind == "d":
            return r.choice([lambda: "d", lambda: "dict(a=1, b='x')", lambda: "(messages[0] if messages else d)", lambda: "{%s: %s}" % (self.string(), self.expr(3)),
                             lambda: "dict(d, z=1)"])()
        return r.choice([
            lambda: "flag", lambda: "true", lambda: "loop.first" if r.random() < 0.2 else "add_generation_prompt", lambda: "message is defined"] + ([] if deep else [
            lambda: "%s is %s%s" % (self.expr(depth + 1), r.choice(["", "not "]), r.choice(
                [t for t in TESTS if t not in ("odd", "even", "divisibleby(3)", "gt 1", "lt(5)")])),
            lambda: "%s is %s" % (k("n"), r.choice(["gt 1", "lt(5)", "number"])), lambda: "(%s) %s (%s)" % (k("t"), r.choice(["==", "!=", "in", "not in", "<"]), k("t")),
            lambda: "(%s) %s (%s)" % (k("n"), r.choice(["==", "!=", "<", "<=", ">"]), k("n")), lambda: "%s in (%s)" % (k("t"), k("l")),
            lambda: "not (%s)" % k("b"), lambda: "(%s) %s (%s)" % (k("b"), r.choice(["and", "or"]), k("b")), lambda: "(%s).startswith(%s)" % (k("t"), k("t")),
            lambda: "1 < %s <= 3" % k("n"), lambda: "'k' in %s" % k("d"), lambda: "(%s)" % self.expr(depth + 1)]))()

    def wild(self, depth=0):
        c = self.r.random()
        if depth > 3 or c < 0.25:
            return self.atom()
        e = lambda: self.expr(depth + 1)
        if c < 0.42:
            return "%s | %s" % (e(), self.r.choice(FILTERS))
        if c < 0.52:
            return "(%s).%s" % (e(), self.r.choice(METHODS))
        if c < 0.60:
            return "%s is %s%s" % (e(), self.r.choice(["", "not "]), self.r.choice(TESTS))
        if c < 0.70:
            return "%s %s %s" % (e(), self.r.choice(["+", "-", "*", "/", "//", "%", "~", "**", "~"]), e())
        if c < 0.79:
            return "%s %s %s" % (e(), self.r.choice(["==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"]), e())
        if c < 0.83:
            return "not " + e()
        if c < 0.88:
            return "%s if %s else %s" % (e(), e(), e())
        if c < 0.90:
            return "%s if %s" % (e(), e())
        if c < 0.96:
            part = lambda: self.r.choice(["", "", "0", "1", "2", "-1", "-2"])
            return "(%s)[%s:%s%s]" % (e(), part(), part(), self.r.choice(["", "", ":", ":-1", ":2"]))
        return "(%s)" % e()

    def tag(self, body):
        return "{%" + self.r.choice(["", "-", "-", "+"]) + " " + body + " " + self.r.choice(["", "-", "-", "+"]) + "%}"

    def out(self, body):
        return "{{" + self.r.choice(["", "-", "-"]) + " " + body + " " + self.r.choice(["", "-"]) + "}}"

    def text(self):
        return self.r.choice(["", "\n", "  \n", "text", " <|im_start|>", "\n    ", "a\n  b\n", "}", "{ ", "%", "\r\n", "\n\n  ", "# "])

    def body(self, depth, top=False):
        return "".join(self.text() + self.statement(depth, top) for _ in range(self.r.randrange(1, 4))) + self.text()

    def statement(self, depth, top=False):
        c = self.r.random()
        if depth > 3 or c < 0.35:
            return self.out(self.expr())
        if c < 0.50:
            other = self.tag("elif " + self.expr()) + self.body(depth + 1) if self.r.random() < 0.3 else ""
            other += self.tag("else") + self.body(depth + 1) if self.r.random() < 0.5 else ""
            return self.tag("if " + self.typed("b", 0)) + self.body(depth + 1) + other + self.tag("endif")
        if c < 0.66:
            target = self.r.choice(["message", "message", "x", "k, v", "y"])
            over = self.r.choice(["messages", "messages", "messages[1:]", "words", "d.items()", "d", "range(3)", self.expr(2)])
            tail = self.r.choice(["", "", "", " if " + self.typed("b", 2), " recursive"])
            jump = self.tag("if " + self.typed("b", 2)) + self.tag(self.r.choice(["break", "continue"])) + self.tag("endif")
            other = self.tag("else") + self.body(depth + 1) if self.r.random() < 0.2 else ""
            inner = self.body(depth + 1) + (jump if self.r.random() < 0.2 else "")
            if tail == " recursive" and self.r.random() < 0.6:
                inner += self.tag("if loop.depth < 3 and %s is sequence" % target.split(",")[0]) + self.out(
                    "loop(%s)" % target.split(",")[0]) + self.tag("endif")
            return self.tag("for %s in %s%s" % (target, over, tail)) + inner + other + self.tag("endfor")
        if c < 0.76:
            return self.tag("set %s = %s" % (self.r.choice(["x", "y", "x, y", "content", "ns.x", "ns.count", "words", "flag"]), self.expr()))
        if c < 0.80:
            return self.tag("set x%s" % self.r.choice(["", " | upper", " | trim | title"])) + self.body(depth + 1) + self.tag("endset")
        if c < 0.84:
            n = self.r.choice(["f", "g"])
            self.macros.add(n)
            return self.tag("macro %s(a, b=%s)" % (n, self.expr(2))) + self.body(depth + 1) + self.out("a ~ b") + \
                self.r.choice(["", self.out("caller()"), self.out("varargs"), self.out("kwargs | tojson")]) + self.tag("endmacro")
        if c < 0.90 and not self.macros:
            return self.out(self.expr())
        if c < 0.88:
            return self.out("%s(%s)" % (self.r.choice(sorted(self.macros)), self.r.choice(["1", "x, y", "a=2", "1, b=x", "", "1, 2, 3", "1, z=4", "*words"])))
        if c < 0.90:
            return self.tag("call %s(%s)" % (self.r.choice(sorted(self.macros)), self.expr(2))) + self.body(depth + 1) + self.tag("endcall")
        if c < 0.93:
            return self.tag("with x = %s, y = %s" % (self.expr(2), self.expr(2))) + self.body(depth + 1) + self.tag("endwith")
        if c < 0.95:
            return self.tag("filter " + self.r.choice(["upper", "trim", "indent(2)", "replace('a', 'o')"])) + self.body(depth + 1) + self.tag("endfilter")
        if c < 0.97:
            return "{#" + self.r.choice(["", "-"]) + " note " + self.r.choice(["", "-", "+"]) + "#}"
        if c < 0.98:
            return self.tag("raw") + self.r.choice(["{{ x }}", " {% if %}\n  "]) + self.tag("endraw")
        if not top:
            return self.out("x")
        return self.tag("generation") + self.body(depth + 1) + self.tag("endgeneration")

    def template(self):
        head = "{% set ns = namespace(x=1, count=0, found=false) %}" if self.r.random() < 0.8 else ""
        return head + self.body(0, True)

    def variables(self):
        r = self.r
        messages = []
        for _ in range(r.randrange(5)):
            m = {"role": r.choice(["system", "user", "assistant", "tool"]), "content": r.choice(WORDS + [None, [{"type": "text", "text": "part"}]])}
            if r.random() < 0.2:
                m["tool_calls"] = [{"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"a": 1, "é": [1.5, None]}}}]
            messages.append(m)
        return {"messages": messages, "tools": r.choice([None, None, [{"type": "function", "function": {"name": "f", "description": "d <x>"}}]]),
                "add_generation_prompt": r.random() < 0.5, "flag": r.random() < 0.5, "number": r.choice([0, 3, -7, 2.5, 12345678]),
                "words": r.sample([w for w in WORDS], r.randrange(6)), "d": {"role": "user", "k": [1, 2], "B": "b", "a": None},
                "bos_token": "<s>", "eos_token": "</s>", "content": r.choice(WORDS),
                "message": messages[0] if messages else {"role": "user", "content": "hi"}}


class Numbers:
    """One call of everything that takes a number, with numbers at the borders of what computers hold."""
    WHOLE = ["0", "1", "-1", "2", "3", "7", "10", "16", "35", "36", "37", "64", "99", "255", "4294967306", "100000", "-5", "12345"] + [
        str(s * (1 << b) + d) for b in (31, 32, 53, 62, 63, 64, 80) for d in (-1, 0, 1) for s in (1, -1)] + [str(10 ** 19), str(-10 ** 25)]
    REAL = ["0.0", "-0.0", "0.5", "1.5", "2.5", "-2.5", "0.1", "1234.5678", "1e15", "1e16", "123456789012345678.0", "1e22", "1e23", "9.5e18", "1e19",
            "1e300", "-1e308", "1e999", "-1e999", "(not_a_number)", "5e-324", "0.00001", "0.0001", "2.675", "1e100", "9007199254740993.0", "0.3", "4.35"]
    TEXTS = ["0x1F", "0X_f", "0b11", "0o17", "1_000", "1__0", "_1", "1_", " 12 ", "-", "+", "", "1e5", "nan", "-nan", "inf", "-Infinity", "zz", "Z9", "-7", "+3",
             "007", "00", "0_0", ".5", "5.", "1.5e400", "12345678901234567890", "-9223372036854775808", "9223372036854775808", "9" * 70, "1_0.5", "1_.5", "1e1_0",
             "0x", "0b2", "0xg", "- 1", "1 2", "\\n42\\t", "1.5", "-0", "0.1" + "0" * 80 + "1", "infinity", "nan(1)", "0x1p3", "1e-400", "abc", "déjà vu"]

    def __init__(self, rng):
        self.r = rng

    def n(self):
        r = self.r
        c = r.random()
        if c < 0.55:
            text = r.choice(self.WHOLE)
        elif c < 0.9:
            text = r.choice(self.REAL)
        else:
            text = r.choice(["true", "false", "none", "'1'", "x", "[1]", "nothing"])
        return "(%s)" % text if text[0] == "-" else text

    def i(self):
        text = self.r.choice(self.WHOLE) if self.r.random() < 0.97 else self.n()
        return "(%s)" % text if text[0] == "-" else text

    def small(self):
        return self.r.choice(["0", "1", "2", "3", "5", "17", "20", "60", "100", "(-1)", "(-2)", "(-3)", "(-19)", "(-20)", "(-18)", "22", "23", "308", "323", "400", "(-308)", "(-400)"])

    def t(self):
        return "'%s'" % self.r.choice(self.TEXTS)

    def expression(self):
        r, n, i, t = self.r, self.n, self.i, self.t
        v = lambda: r.choice([n, n, t])()
        l = lambda: r.choice(["[3, 1, 2]", "'abcde'", "range(5)", "[]", "[%s, %s, %s]" % (n(), n(), n()), "(%s, %s)" % (n(), n())])
        method = r.choice(["'ceil'", "'floor'", "'common'"])
        flags, width = r.choice(["", "-", "+", " ", "0", "#", "0+", "#0", "-0", "+ "]), r.choice(["", "1", "12", "30", "9999", "2147483648", "99999999999999999999"])
        dot, kind = r.choice(["", "", ".0", ".1", ".3", ".20", ".120", ".2147483647", "."]), r.choice("diuoxXeEfFgGsr")
        spec = r.choice(["", "<", ">", "^", "*^", "é>", "0<"]) + r.choice(["", "+", "-", " "]) + r.choice(["", "#"]) + r.choice(["", "0"]) + width + dot + r.choice(
            ["", "d", "f", "F", "e", "E", "g", "G", "x", "X", "o", "%", "s"])
        one = r.choice
        return one([
            lambda: "%s | int" % v(), lambda: "%s | int(%s)" % (v(), n()), lambda: "%s | int(%s, %s)" % (t(), n(), i()), lambda: "%s | int(7, %s)" % (t(), one(["0", "2", "8", "16", "36"])),
            lambda: "%s | float" % v(), lambda: "%s | float(%s)" % (v(), n()), lambda: "%s | abs" % n(), lambda: "%s | round" % n(), lambda: "%s | round(%s)" % (n(), self.small()),
            lambda: "%s | round(%s, %s)" % (n(), self.small(), method), lambda: "(%s) | round(%s)" % (one(self.REAL), i()),
            lambda: "%s %s %s" % (n(), one("+-*"), n()), lambda: "%s %s %s" % (n(), one(["/", "//", "%"]), n()), lambda: "%s ** %s" % (n(), self.small()), lambda: "-%s" % n(), lambda: "+%s" % n(),
            lambda: "%s %s %s" % (n(), one(["==", "!=", "<", "<=", ">", ">="]), n()), lambda: "%s in [%s, %s]" % (n(), n(), n()), lambda: "%s in {%s: 1}" % (n(), n()),
            lambda: "{%s: 1, %s: 2} | length" % (n(), n()), lambda: "%s | tojson" % n(), lambda: "[%s, {'a': %s}] | tojson(indent=%s)" % (n(), n(), self.small()),
            lambda: "{'b': %s, 'a': %s} | tojson(sort_keys=true)" % (n(), n()), lambda: "[%s, %s] | string" % (n(), n()), lambda: "{%s: %s} | tojson" % (n(), n()),
            lambda: "%s ~ %s" % (n(), n()), lambda: "%s | string" % n(), lambda: "'%%%s%s%s%s' %% %s" % (flags, width, dot, kind, n()), lambda: "'%%%s%s%s' | format(%s)" % (flags, dot, kind, n()),
            lambda: "'{:%s}'.format(%s)" % (spec, n()), lambda: "'{%s}'.format(1, 2)" % i(), lambda: "'{0[%s]}'.format([1, 2])" % one(self.WHOLE), lambda: "'{:%s}'.format(%s)" % (spec, t()),
            lambda: "%s is %s" % (n(), one(["odd", "even", "number", "integer", "float", "boolean", "sameas(1)", "none", "string", "true"])), lambda: "%s is divisibleby(%s)" % (n(), n()),
            lambda: "%s is %s(%s)" % (n(), one(["gt", "lt", "ge", "le", "eq", "ne"]), n()), lambda: "(%s)[%s]" % (l(), i()), lambda: "(%s)[%s:%s]" % (l(), i(), i()),
            lambda: "((%s)[::%s]) | list" % (l(), i()), lambda: "((%s)[%s:%s:%s]) | list" % (l(), i(), i(), i()), lambda: "range(%s) | list | length" % i(), lambda: "range(%s, %s) | list | length" % (i(), i()),
            lambda: "range(%s, %s, %s) | list" % (i(), i(), i()), lambda: "range(%s) | last" % self.small(), lambda: "'ab' * %s" % self.small(), lambda: "[1] * %s" % self.small(), lambda: "'ab' * %s" % i(),
            lambda: "'ab cd\\nef' | truncate(%s, %s, '..', %s)" % (i(), one(["true", "false"]), i()), lambda: "'ab cd ef gh' | truncate(%s, true, '', %s)" % (self.small(), self.small()),
            lambda: "'a\\nb' | indent(%s)" % i(), lambda: "'a' | center(%s)" % i(), lambda: "'ab'.%s(%s)" % (one(["center", "ljust", "rjust", "zfill"]), one([i, self.small])()),
            lambda: "'-7'.zfill(%s)" % self.small(), lambda: "'a-b-a-b'.replace('a', 'x', %s)" % i(), lambda: "'aaa' | replace('a', 'x', %s)" % i(), lambda: "'abc'.replace('', '-', %s)" % i(),
            lambda: "'a b c d'.%s(%s, %s)" % (one(["split", "rsplit"]), one(["' '", "none", "'b'"]), i()), lambda: "'abcabc'.%s('b', %s, %s)" % (one(["find", "rfind", "index", "rindex", "count", "startswith", "endswith"]), i(), i()),
            lambda: "'äbçab'.%s('b', %s)" % (one(["find", "rfind", "count"]), i()), lambda: "[1, 2, 3] | batch(%s) | list" % i(), lambda: "[1, 2, 3] | batch(%s, 0) | list" % self.small(),
            lambda: "[1, 2, 3] | slice(%s) | list | length" % self.small(), lambda: "[%s, %s, %s] | sum" % (n(), n(), n()), lambda: "[%s] | sum(start=%s)" % (n(), n()),
            lambda: "[%s, %s, %s] | %s" % (n(), n(), n(), one(["max", "min", "sort", "unique | list", "sort(reverse=true)"])), lambda: "[[1, 2]] | map(attribute=%s) | list" % i(),
            lambda: "[[3, 1], [2, 4]] | sort(attribute=%s)" % i(), lambda: "[[1], [2]] | map(attribute='%s') | list" % one(self.WHOLE), lambda: "(%s) if %s else 2" % (n(), n()),
            lambda: "%s and 3" % n(), lambda: "%s | default(1, true)" % n(), lambda: "[1, 2].index(%s)" % n(), lambda: "[1, 2].count(%s)" % n(), lambda: "{'a': 1}.get(%s, %s)" % (n(), n()),
            lambda: "(%s).is_integer()" % n(), lambda: "%s | filesizeformat" % n() if r.random() < 0 else "%s | wordcount" % t(), lambda: "%s | length" % n(), lambda: "[%s] | join(%s)" % (n(), n()),
            lambda: "big == %s" % n(), lambda: "data | tojson", lambda: "data.%s | %s" % (one(["a", "b", "c", "d"]), one(["string", "tojson", "int", "float", "abs", "round(2)"]))])()

    def template(self):
        return "".join("{{ %s }}\n" % self.expression() for _ in range(1))

    def variables(self):
        r = self.r
        pick = lambda: r.choice([int(r.choice(self.WHOLE)), r.choice([0.1, 1e16, 1e22, 5e-324, 123456789.125, 1e-5, -0.0, r.random() * 10 ** r.randrange(-20, 25)]), r.randrange(-10 ** 30, 10 ** 30)])
        return {"messages": [], "x": pick(), "big": 2 ** 64, "data": {k: pick() for k in "abcd"}}


def reference(template, variables):
    v = dict(variables)
    messages = v.pop("messages")
    try:
        compiled = oracle._compile_jinja_template(template)
        if re.search(r"\{%[-+]? generation", template):
            spans = []
            blocks = []
            with compiled.environment.activate_tracker(blocks, spans):
                for block in compiled.generate(messages=messages, **v):
                    blocks.append(block)
                text = "".join(blocks)
        else:
            spans, text = [], compiled.render(messages=messages, **v)
    except Exception as e:  # noqa: any failure of the oracle is a failure
        return {"error": "%s: %s" % (type(e).__name__, e)}
    return {"text": text, "spans": [list(s) for s in spans]}


UNLIKE = ("NameError: name 'inf'", "NameError: name 'nan'", "<generator", "<bound method", "<built-in", "<function", "<Macro", "<LoopContext", "<jinja2", "object at 0x", "range(", "<Namespace", "reverseiterator",
          "Markup(", "SecurityError", "OverflowError", "Recursion", "sequence_t", "namespace", "int too large", "Exceeds the limit", "<macro", "_GroupTuple", "GENERATOR", "Generator")
# What ours refuses though Python computes it: results beyond 64 bits, and much memory.
REFUSED = ("64 bits", "memory", "wider than", "does not end", "more than 4300 digits", "is not supported", "rows of at least 1", "at least 1 slice", "does not compute", "does not fit the number", "needs integers",
           "expected an integer")


class Slow(Exception):
    pass


def slow(*_):
    raise Slow


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("--numbers", action="store_true")
    parser.add_argument("--trace", action="store_true", help="print each template before it is tried")
    a = parser.parse_args()
    signal.signal(signal.SIGALRM, slow)
    ours = subprocess.Popen([a.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), -1)) # 'ab' * 2147483648 fails in the oracle, too
    rng, start = random.Random(a.seed), time.monotonic()
    count = same_text = both_fail = skipped = refused = bad = 0
    while time.monotonic() - start < a.seconds:
        maker = Numbers(rng) if a.numbers else Maker(rng)
        template, variables = maker.template(), maker.variables()
        if a.trace:
            print(template, json.dumps(variables), file=sys.stderr, flush=True)
        signal.setitimer(signal.ITIMER_REAL, 2)
        want = reference(template, variables)
        signal.setitimer(signal.ITIMER_REAL, 0)
        ours.stdin.write(json.dumps({"template": template, "variables": variables}) + "\n")
        ours.stdin.flush()
        line = ours.stdout.readline()
        if not line:
            print("our program ended at:\n%s\n%s" % (template, json.dumps(variables)))
            return 1
        got = json.loads(line)
        count += 1
        if "text" in got:
            b = got["text"].encode()
            got["spans"] = [[len(b[:x].decode(errors="replace")), len(b[:y].decode(errors="replace"))] for x, y in got["spans"]]
        if any(u in str(want) or u in str(got) for u in UNLIKE) and not ("error" in want and "error" in got):
            skipped += 1
        elif "error" in want and "error" in got:
            both_fail += 1
        elif want == got:
            same_text += 1
        elif "error" in got and a.numbers and any(u in got["error"] for u in REFUSED):
            refused += 1
        else:
            bad += 1
            if bad <= a.show:
                print("---- template\n%s\n---- variables %s\n---- transformers %r\n---- ours         %r\n" % (
                    template, json.dumps(variables), want, got))
    print("seed %d: %d templates, %d equal texts, %d fail in both, %d refused by ours, %d not compared, %d differ" % (
        a.seed, count, same_text, both_fail, refused, skipped, bad))
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

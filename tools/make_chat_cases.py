#!/usr/bin/env python3
"""What Python's Jinja2 makes of chat templates, set up as in transformers' apply_chat_template:
ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls, its own tojson.

  tools/make_chat_cases.py > tests/data/chat_snippets.jsonl    the snippets of chat_snippets.txt
  tools/make_chat_cases.py FOLDER > cases.jsonl                each *.jinja of a folder

A line is a JSON object: template, input (messages, …), and output or error (true). Needs jinja2;
transformers/utils/chat_template_utils.py is the source of the settings.
"""

import json
import pathlib
import sys

from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.sandbox import ImmutableSandboxedEnvironment

TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a \"city\" <now>",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Name, e.g. Zürich"},
        "days": {"type": "integer"}}, "required": ["city"]}}}
CALL = {"id": "call12345", "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}}
USER = {"role": "user", "content": " What's up, <|im_end|> you?\n"}
ANSWER = {"role": "assistant", "content": "Not much.\n\nAnd you? "}
CONVERSATIONS = [
    {"messages": [USER]},
    {"messages": [{"role": "system", "content": "Be brief. "}, USER, ANSWER, USER]},
    {"messages": [USER, ANSWER], "add_generation_prompt": False},
    {"messages": [USER], "tools": [TOOL]},
    {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                  {"role": "tool", "name": "get_weather", "content": "{\"degrees\": 7.5}",
                   "tool_call_id": "call12345"}], "tools": [TOOL]},
    {"messages": [USER, {"role": "assistant", "content": "<think>hm</think>yes"}, USER],
     "variables": {"enable_thinking": False}},
]


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def render(template, given):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: __import__("time").strftime(
        form, __import__("time").gmtime(86400))
    values = {"tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>",
              "eos_token": "</s>", **given, **given.get("variables", {})}
    return environment.from_string(template).render(**values)


def case(template, given):
    result = {"template": template, "input": given}
    try:
        result["output"] = render(template, given)
    except Exception as error:  # whatever Jinja2 or Python refuses
        result["error"] = True
        result["jinja"] = f"{type(error).__name__}: {error}"[:200]
    return json.dumps(result, ensure_ascii=False)


def main():
    if len(sys.argv) > 1:
        for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
            for given in CONVERSATIONS:
                print(case(path.read_text(encoding="utf-8"), given))
        return
    folder = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
    variables = {"n": 3, "x": 2.5, "s": "Hello wOrld", "l": [3, 1, 2], "d": {"b": 1, "a": [True]},
                 "p": [{"k": "a", "v": 1}, {"k": "b", "v": 0}], "u": "Zürich €"}
    given = {"messages": [USER], "variables": variables}
    for line in (folder / "chat_snippets.txt").read_text(encoding="utf-8").splitlines():
        print(case(line.replace("↵", "\n"), given))


if __name__ == "__main__":
    main()

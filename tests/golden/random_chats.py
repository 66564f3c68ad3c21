"""Random chats of every shape: roles in any order, calls of tools, thoughts, contents in parts, markers as text. Each text has tags, which no other has."""
import re

WORDS = ["Hello", "world", "the", "a", "tokens,", "naïve", "日本", "😀", "x = 1;", "\n", "\n\n", "- item\n", "  two", "1234", "<b>", "it's", ".", "é́", "ZZZ", "QQQ"]
FAKES = ["<|im_start|>assistant\n", "<|im_end|>", "<|im_end|>\n<|im_start|>assistant\n", "[INST]", "[/INST]", "</s>", "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n",
         "<end_of_turn>", "<start_of_turn>model\n", "<|assistant|>\n", "<|end|>", "ASSISTANT:", "<|user|>", "<|turn>model\n", "<turn|>", "<｜Assistant｜>"]


class Draw:
    def __init__(self, rng):
        self.rng = rng
        self.n = 0

    def tag(self):
        self.n += 1
        return "k%dq" % self.n

    def say(self, fakes=True):
        r = self.rng
        if r.random() < 0.04:
            return r.choice(["", "", " ", "\n"])
        parts = [self.tag()] + r.choices(WORDS, k=r.randrange(0, 12))
        if fakes and r.random() < 0.12:
            parts.insert(r.randrange(len(parts) + 1), r.choice(FAKES))
        if r.random() < 0.2:
            parts[0], parts[-1] = parts[-1], parts[0]
        if fakes and r.random() < 0.03:
            parts.insert(0, "<think>\nhm %s\n</think>\n\n" % self.tag())
        return r.choice(["", "", "", " ", "\n"]) + " ".join(parts) + r.choice(["", "", "", "\n", " "])

    def parts(self, text):
        """The text as a list of parts."""
        places = [i for i in range(len(text) + 1) if not re.search(r"k\d*$", text[:i]) or not re.match(r"\d*q", text[i:])]
        cuts = sorted(self.rng.choices(places, k=self.rng.choice([0, 1, 1, 2])))
        return [{"type": "text", "text": text[a:b]} for a, b in zip([0, *cuts], [*cuts, len(text)])]

    def assistant(self, thinks):
        m = {"role": "assistant", "content": self.say()}
        if thinks and self.rng.random() < 0.6:
            m["reasoning_content"] = m["thinking"] = self.say(fakes=False) or "so"
        return m

    def calls(self, thinks):
        r = self.rng
        m = self.assistant(thinks)
        if r.random() < 0.7:
            m["content"] = ""
        calls = []
        for _ in range(r.choice([1, 1, 1, 2])):
            call = {"type": "function", "function": {"name": r.choice(["find", "look_up"]), "arguments": {"what": self.tag(), "n": r.randrange(9)}}}
            if r.random() < 0.5:
                call["id"] = "call%05d" % r.randrange(10000)
            calls.append(call)
        m["tool_calls"] = calls
        return m

    def results(self, calls):
        for call in calls:
            m = {"role": "tool", "content": self.say(fakes=False) or "3"}
            if self.rng.random() < 0.5:
                m["name"] = call["function"]["name"]
            if "id" in call:
                m["tool_call_id"] = call["id"]
            yield m

    def chat(self, template=""):
        r = self.rng
        record, messages = {}, []
        thinks, uses_tools = r.random() < 0.3, r.random() < 0.25
        if r.random() < 0.4:
            messages.append({"role": "system", "content": self.say()})
        if r.random() < 0.15:
            messages.append(self.assistant(thinks))
        for _ in range(r.choice([0, 1, 1, 1, 2, 2, 3, 4])):
            messages.append({"role": "user", "content": self.say()})
            if r.random() < 0.04:
                messages.append({"role": "user", "content": self.say()})
            if uses_tools and r.random() < 0.6:
                for _ in range(r.choice([1, 1, 2])):
                    messages.append(self.calls(thinks))
                    messages.extend(self.results(messages[-1]["tool_calls"]))
                if r.random() < 0.1:
                    continue
            messages.append(self.assistant(thinks))
            if r.random() < 0.12:
                messages.append(self.assistant(thinks))
            if r.random() < 0.06:
                messages.append({"role": "system", "content": self.say()})
        if not any(m["role"] == "assistant" for m in messages):
            messages.append(self.assistant(thinks))
        if r.random() < (0.4 if "is string" in template else 0.1):
            for m in messages:
                if isinstance(m["content"], str) and r.random() < 0.5:
                    m["content"] = self.parts(m["content"])
        record["messages"] = messages
        if uses_tools and r.random() < 0.8:
            record["tools"] = [{"type": "function", "function": {"name": n, "description": "Finds " + self.tag(), "parameters": {
                "type": "object", "properties": {"what": {"type": "string", "description": "it"}, "n": {"type": "integer"}}, "required": ["what"]}}} for n in ("find", "look_up")]
        if r.random() < 0.12:
            record["chat_template_kwargs"] = {"enable_thinking": r.random() < 0.5}
        if r.random() < (0.3 if "documents" in template else 0.02):
            record["documents"] = [{"doc_id": n, "title": self.tag(), "text": self.say(fakes=False)} for n in range(r.choice([1, 1, 3]))]
        if r.random() < 0.06:
            r.choice([m for m in messages if m["role"] == "assistant"])["weight"] = 0
        return record


def text_in(message):
    """The words of a content, which may be parts."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(p["text"] for p in content)

/* links: data */
/* Rows of chats: which tokens are trained, in every format, for both ways to find turns; refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/chat/chat_template.h"
#include "data/rows/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/chat_tokenizer.h"
#include "tests/dataset_rows.h"

static char temp_dir[] = "/tmp/ferry_test_chat_XXXXXX";

static char *write_file(const char *name, const char *text)
{
	char *path = file_join(temp_dir, name);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fputs(text, f) < 0, 0);
	assert_int_equal(fclose(f), 0);
	return path;
}

static struct tokenizer *make_tokenizer(const char *config)
{
	struct str json = {0};
	struct tokenizer *t = NULL;

	chat_tokenizer_json(&json);
	mem_free(write_file("tokenizer.json", json.data));
	str_free(&json);
	mem_free(write_file("tokenizer_config.json", config));
	if (tokenizer_open(&t, temp_dir))
		fail_msg("%s", err_text());
	return t;
}

static const char with_eos[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";

struct setting {
	const char *template; /* a name, or a source that begins with '{' */
	enum dataset_inputs inputs;
	enum dataset_turns turns;
	int64_t max_length;
	int chosen;
	enum dataset_alpaca alpaca; /* unless chosen */
};

static int open_rows(struct dataset **d, struct tokenizer *t, const char *rows, struct setting setting)
{
	char *data = write_file("rows.jsonl", rows), *file = NULL;
	struct chat_template_options o = {.choice = setting.template, .dir = temp_dir, .tokenizer = t};
	struct chat_template *template = NULL;
	int rc;

	if (setting.template && setting.template[0] == '{')
		o.choice = file = write_file("own.jinja", setting.template);
	rc = chat_template_open(&template, &o);
	if (!rc) {
		struct dataset_options options = {.path = data,
		        .tokenizer = t,
		        .inputs = setting.inputs,
		        .turns = setting.turns,
		        .max_length_tokens = setting.max_length,
		        .chat_template = template,
		        .alpaca = setting.chosen ? DATASET_ALPACA_CHAT : setting.alpaca};

		rc = dataset_open(d, &options);
	}
	chat_template_close(template);
	mem_free(file);
	mem_free(data);
	return rc;
}

/* The text of a row, its trained stretches in { }. */
static void show(struct str *out, const struct dataset *d, const struct tokenizer *t, int64_t row)
{
	int trained = 0;

	for (int64_t i = 0; i < dataset_row_tokens(d, row); i++) {
		int now = dataset_label(d, row, i) != DATASET_IGNORE;
		char *text = NULL;

		if (now != trained)
			str_add(out, now ? "{" : "}");
		trained = now;
		assert_int_equal(
		        tokenizer_decode(t, &text, NULL, dataset_row_ids(d, row) + i, 1, SKIP_SPECIAL_OFF),
		        0);
		str_add(out, text);
		mem_free(text);
	}
	str_add(out, trained ? "}" : "");
}

static void check(const char *rows, struct setting setting, const char *want, int64_t turn_ends)
{
	struct tokenizer *t = make_tokenizer(with_eos);
	struct dataset *d = NULL;
	struct str got = {0};

	if (open_rows(&d, t, rows, setting))
		fail_msg("%s\n%s", rows, err_text());
	for (int64_t row = 0; row < d->row_count; row++) {
		str_add(&got, row ? "#" : "");
		show(&got, d, t, row);
	}
	assert_string_equal(got.data, want);
	assert_int_equal(d->counts.turn_ends, turn_ends);
	str_free(&got);
	dataset_close(d);
	tokenizer_close(t);
}

static void check_refused(const char *rows, struct setting setting, const char *says)
{
	struct tokenizer *t = make_tokenizer(with_eos);
	struct dataset *d = NULL;
	int rc = open_rows(&d, t, rows, setting);

	if ((rc != ERR_INPUT && rc != ERR_UNSUPPORTED) || d || !strstr(err_text(), says))
		fail_msg("%s\ngave %d: %s", rows, rc, rc ? err_text() : "");
	tokenizer_close(t);
}

#define U(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define S(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define ROW(turns) "{\"messages\":[" turns "]}\n"

#define TURN(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
#define SAID(text) "<|im_start|>assistant\n{" text "<|im_end|>}\n"
#define CHATML                                                                                               \
	"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor " \
	"%}"                                                                                                 \
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

/* Marked and proven turns are the same ones. */
static void test_turns(void **state)
{
	static const char rows[] = ROW(S("be") "," U("hi") "," A("yo\\n") "," U("so") "," A("\\nok"));
	static const char want[] =
	        TURN("system", "be") TURN("user", "hi") SAID("yo\n") TURN("user", "so") SAID("\nok");

	(void)state;
	check(rows, (struct setting){.template = "chatml"}, want, 2);
	check(rows, (struct setting){.template = CHATML}, want, 2);
	check(ROW(U("a") "," A("b")) ROW(U("c") "," A("") "," U("d")), (struct setting){.template = CHATML},
	        TURN("user", "a") SAID("b") "#" TURN("user", "c") SAID("") TURN("user", "d"), 2);
	check(rows, (struct setting){.template = CHATML, .turns = DATASET_TURNS_LAST},
	        TURN("system", "be") TURN("user", "hi") TURN("assistant", "yo\n") TURN("user", "so")
	                SAID("\nok"),
	        1);
	check(ROW(U("a") "," A("b")), (struct setting){.template = CHATML, .inputs = DATASET_INPUTS_TRAIN},
	        "{" TURN("user", "a") TURN("assistant", "b") "}", 1);
	check(ROW(U("a") "," A("b")), (struct setting){.template = CHATML, .inputs = DATASET_INPUTS_CHATS},
	        "{" TURN("user", "a") TURN("assistant", "b") "}", 1);
	check(ROW(U("a") "," A("b")), (struct setting){.template = CHATML, .inputs = DATASET_INPUTS_PROMPTS},
	        TURN("user", "a") SAID("b"), 1);
}

/* Templates that end the whole chat in another way than a turn, or begin an answer in another way than its
 * prompt. */
static void test_templates(void **state)
{
	static const char phi[] =
	        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
	        "{{ '<|assistant|>' if add_generation_prompt else eos_token }}";
	static const char inst[] = "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ "
	                           "'[INST] ' + m.content + ' [/INST]' }}"
	                           "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}";
	/* thoughts are written for the last answer only, and asked for by the prompt */
	static const char think[] =
	        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
	        "{{ '(t)' if m.role == 'assistant' and loop.last }}{{ m.content + '<|im_end|>\n' }}{% endfor "
	        "%}"
	        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n(t)' }}{% endif %}";

	(void)state;
	check(ROW(U("a") "," A("b") "," U("c") "," A("d")), (struct setting){.template = phi},
	        "<|user|>a<|end|><|assistant|>{b<|end|>}<|user|>c<|end|><|assistant|>{d<|end|>}</s>", 2);
	check(ROW(U("a") "," A("b") "," U("c") "," A("d")), (struct setting){.template = inst},
	        "<s>[INST] a [/INST]{ b</s>}[INST] c [/INST]{ d</s>}", 2);
	check(ROW(U("a") "," A("b") "," U("c") "," A("d")), (struct setting){.template = think},
	        TURN("user", "a") SAID("b") TURN("user", "c") "<|im_start|>assistant\n(t){d<|im_end|>}\n", 2);
}

/* Chats of other shapes than question and answer: headers and the template's own system message are not
 * trained. */
static void test_shapes(void **state)
{
#define DEFAULT                                                                                              \
	"{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nbe<|im_end|>\n' }}{% endif %}" CHATML
	/* no prompt behind an answer */
	static const char once[] =
	        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
	        "{% endfor %}{% if add_generation_prompt and messages[-1].role != 'assistant' %}"
	        "{{ '<|im_start|>assistant\n' }}{% endif %}";
	/* another end behind the last answer, as gpt-oss */
	static const char pause[] =
	        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{{ '</s>' if loop.last and "
	        "m.role == 'assistant' "
	        "else '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";
	static const char marked[] = "{% for m in messages %}{{ '<|' + m.role + '|>' }}{% if m.role == "
	                             "'assistant' %}{% generation %}{{ m.content }}"
	                             "{{ '</s>' if loop.last else '<|end|>' }}{% endgeneration %}{% else "
	                             "%}{{ m.content + '<|end|>' }}{% endif %}"
	                             "{% endfor %}";
	static const char first[] = ROW(A("b") "," U("c") "," A("d"));

	(void)state;
	check(first, (struct setting){.template = DEFAULT},
	        TURN("system", "be") SAID("b") TURN("user", "c") SAID("d"), 2);
	check(ROW(A("b")), (struct setting){.template = DEFAULT}, TURN("system", "be") SAID("b"), 1);
	check(ROW(U("a") "," A("b") "," A("c") "," U("d") "," A("e")), (struct setting){.template = once},
	        TURN("user", "a") SAID("b") SAID("c") TURN("user", "d") SAID("e"), 3);
	check(ROW(U("a") "," A("b") "," S("c") "," A("d")), (struct setting){.template = DEFAULT},
	        TURN("system", "be") TURN("user", "a") SAID("b") TURN("system", "c") SAID("d"), 2);
	/* contents that look like what the template writes */
	check(ROW(U("<|im_start|>assistant\\nx<|im_end|>\\n") "," A(
	              "b<|im_end|>\\n<|im_start|>assistant\\nc")),
	        (struct setting){.template = CHATML},
	        TURN("user", "<|im_start|>assistant\nx<|im_end|>\n")
	                SAID("b<|im_end|>\n<|im_start|>assistant\nc"),
	        1);
	for (int i = 0; i < 2; i++)
		check(ROW(U("a") "," A("b") "," U("c") "," A("d")),
		        (struct setting){.template = i ? marked : pause},
		        "<|user|>a<|end|><|assistant|>{b<|end|>}<|user|>c<|end|><|assistant|>{d</s>}", 1);
}

#define CALL(arguments)                                                                                      \
	"{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","            \
	"\"arguments\":"                                                                                     \
	"\"" arguments "\"}}]}"

/* OpenAI's calls of tools: a null content is nothing unless the template tests for it, and arguments are an
 * object unless the template wants them as they are written. */
static void test_tool_calls(void **state)
{
	static const char rows[] = ROW(U("a") "," CALL("{\\\"x\\\": 1}") "," A("b"));
#define CALLS(content, arguments)                                                                            \
	"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.tool_calls %}" content           \
	"{{ m.tool_calls[0].function.name }}" arguments "{% else %}{{ m.content }}{% endif %}"               \
	"{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% "   \
	"endif %}"

	(void)state;
	check(rows,
	        (struct setting){
	                .template = CALLS("{{ m.content }}", "{{ m.tool_calls[0].function.arguments.x }}")},
	        TURN("user", "a") SAID("f1") SAID("b"), 2);
	check(rows,
	        (struct setting){.template = CALLS("{{ 'none ' if m.content is none }}",
	                                 "{{ m.tool_calls[0].function.arguments | tojson }}")},
	        TURN("user", "a") SAID("none f{\"x\": 1}") SAID("b"), 2);
	check(rows,
	        (struct setting){
	                .template = CALLS("", "{{ '(' + m.tool_calls[0].function.arguments + ')' }}")},
	        TURN("user", "a") SAID("f({\"x\": 1})") SAID("b"), 2);
	/* the begin of the tool's answer ends the call (Gemma 4) */
	check(ROW(U("a") "," CALL("{}") ",{\"role\":\"tool\",\"content\":\"r\"}," A("b")),
	        (struct setting){
	                .template =
	                        "{% for m in messages %}{% if m.role == 'tool' %}{{ 'is ' + m.content + ';' "
	                        "}}"
	                        "{% elif m.tool_calls %}{{ '<|im_start|>assistant\n' + "
	                        "m.tool_calls[0].function.name + '<|end|>' }}{% else %}{{ '' if "
	                        "loop.previtem and loop.previtem.role == 'tool' else '<|im_start|>' + m.role "
	                        "+ '\n' }}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
	                        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
	        TURN("user", "a") "<|im_start|>assistant\n{f<|end|>}is r;{b<|im_end|>}\n", 2);
}

/* Templates that mark a turn in pieces, that end only turns that others follow, and that look ahead. */
static void test_rare_templates(void **state)
{
	static const char pieces[] =
	        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
	        "{% generation %}(t){% endgeneration %} {% generation %}{{ m.content + '<|im_end|>' }}"
	        "{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor "
	        "%}";
	static const char open[] = "{% for m in messages %}{% if m.role == 'user' %}{{ '' if loop.first else "
	                           "'</s>' }}[{{ m.content }}]"
	                           "{% else %}{{ m.content }}{% endif %}{% endfor %}";
	static const char ahead[] =
	        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
	        "{{ '!' if loop.last and m.role == 'user' }}{{ '<|im_end|>\n' }}"
	        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
	static const char left_open[] = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + "
	                                "m.content }}{{ '<|im_end|>\n' if not loop.last }}"
	                                "{% endfor %}{% if add_generation_prompt %}{{ "
	                                "'<|im_end|>\n<|im_start|>assistant\n' }}{% endif %}";
	/* two tokens behind an answer: the end is the last of them */
	static const char two[] =
	        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|></s>' }}{% endfor %}";
	static const char rows[] = ROW(U("a") "," A("b") "," U("c") "," A("d"));

	(void)state;
	check(ROW(U("a") "," A("b")), (struct setting){.template = left_open},
	        TURN("user", "a") "<|im_start|>assistant\n{b<|im_end|>}", 1);
	check(rows, (struct setting){.template = two},
	        "<|user|>a<|end|></s><|assistant|>{b<|end|></s>}<|user|>c<|end|></s><|assistant|>{d<|end|></"
	        "s>}",
	        2);
	check(rows, (struct setting){.template = pieces},
	        TURN("user", "a") "<|im_start|>assistant\n{(t)} {b<|im_end|>}\n" TURN(
	                "user", "c") "<|im_start|>assistant\n{(t)} {d<|im_end|>}\n",
	        2);
	check_refused(
	        ROW(U("a") ",{\"role\":\"assistant\",\"content\":\"b\",\"train\":false}," U("c") "," A("d")),
	        (struct setting){.template = pieces},
	        "marks answers in several pieces, so all of them must be trained");
	check(rows, (struct setting){.template = open}, "[a]{b</s>}[c]{d</s>}", 2);
	check(rows, (struct setting){.template = ahead},
	        TURN("user", "a") SAID("b") TURN("user", "c") SAID("d"), 2);
}

static void test_flags(void **state)
{
	(void)state;
	check("{\"messages\":[" U("a") ",{\"role\":\"assistant\",\"content\":\"b\",\"weight\":0}," U(
	              "c") ","
	                   "{\"role\":\"assistant\",\"content\":\"d\",\"weight\":1}]}",
	        (struct setting){.template = "chatml"},
	        TURN("user", "a") TURN("assistant", "b") TURN("user", "c") SAID("d"), 1);
	check("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"value\":\"a\"},{\"type\":"
	      "\"text\",\"text\":\"b\"}],"
	      "\"loss_weight\":0.0},{\"role\":\"assistant\",\"content\":\"d\",\"train\":true,\"name\":null}]"
	      "}",
	        (struct setting){.template = CHATML}, TURN("user", "ab") SAID("d"), 1);
	check_refused("{\"messages\":[{\"role\":\"assistant\",\"content\":\"d\",\"weight\":0.5}]}",
	        (struct setting){.template = "chatml"}, "messages[0].weight must be 0 or 1");
	check_refused("{\"messages\":[{\"role\":\"user\",\"content\":\"d\",\"weight\":1}," A("x") "]}",
	        (struct setting){.template = "chatml"},
	        "messages[0] is not from the assistant but sets train; set train_on_inputs=on");
}

static void test_formats(void **state)
{
	static const char tools[] =
	        "{{ tools | tojson if tools }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + "
	        "m.content }}"
	        "{{ m.tool_calls | tojson if m.tool_calls }}{{ '<|im_end|>\n' }}{% endfor %}"
	        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

	(void)state;
	check("{\"system\":\"s\",\"conversations\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\","
	      "\"value\":\"b\"},"
	      "{\"from\":\"user\",\"value\":\"c\"},{\"from\":\"chatgpt\",\"value\":\"d\",\"weight\":0}]}",
	        (struct setting){.template = "chatml"},
	        TURN("system", "s") TURN("user", "a") SAID("b") TURN("user", "c") TURN("assistant", "d"), 1);
	check("{\"tools\":\"[{\\\"name\\\":\\\"f\\\"}]\",\"conversations\":[{\"from\":\"human\",\"value\":"
	      "\"a\"},"
	      "{\"from\":\"function_call\",\"value\":\"{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{\\\"x\\\":"
	      "1}}\"},"
	      "{\"from\":\"observation\",\"value\":\"r\"},{\"from\":\"gpt\",\"value\":\"b\"}]}",
	        (struct setting){.template = tools},
	        "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]" TURN("user", "a")
	                SAID("[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
	                     "{\"x\": 1}}}]") TURN("tool", "r") SAID("b"),
	        2);
	check("{\"prompt\":[" U("a") "," A("b") "," U("c") "],\"completion\":[" A("d") "]}",
	        (struct setting){.template = "chatml"},
	        TURN("user", "a") TURN("assistant", "b") TURN("user", "c") SAID("d"), 1);
	check("{\"messages\":[" U("a") "," A("b") "],\"chat_template_kwargs\":{\"mood\":\"!\"}}",
	        (struct setting){.template = "{{ mood }}" CHATML}, "!" TURN("user", "a") SAID("b"), 1);
}

/* A role is the template's to know. */
static void test_roles(void **state)
{
	static const char own[] =
	        "{% for m in messages %}{{ '<|im_start|>' + ('user' if m.role == 'User' else m.role) + "
	        "'\n' + m.content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
	        "{{ '<|im_start|>assistant\n' }}{% endif %}";

	(void)state;
	check(ROW("{\"role\":\"developer\",\"content\":\"s\"}," U("a") "," A("b") ",{\"role\":\"ipython\","
	                                                                          "\"content\":\"r\"}," A(
	                                                                                  "d")),
	        (struct setting){.template = "chatml"},
	        TURN("developer", "s") TURN("user", "a") SAID("b") TURN("ipython", "r") SAID("d"), 2);
	check(ROW("{\"role\":\"User\",\"content\":\"a\"}," A("b")), (struct setting){.template = own},
	        TURN("user", "a") SAID("b"), 1);
}

static void test_alpaca(void **state)
{
	static const char row[] = "{\"instruction\":\"q\",\"input\":\"i\",\"output\":\"o\",\"system\":\"s\","
	                          "\"history\":[[\"a\",\"b\"]]}";

	(void)state;
	check(row, (struct setting){.template = NULL},
	        "s\n\n### Instruction:\na\n\n### Response:{b</s>}\n\n### Instruction:\nq\n\n### "
	        "Input:\ni\n\n### Response:{o</s>}",
	        0);
	check(row, (struct setting){.template = NULL, .turns = DATASET_TURNS_LAST},
	        "s\n\n### Instruction:\na\n\n### Response:b</s>\n\n### Instruction:\nq\n\n### "
	        "Input:\ni\n\n### Response:{o</s>}",
	        0);
	check(row, (struct setting){.template = NULL, .alpaca = DATASET_ALPACA_STANFORD_NEWLINE},
	        "s\n\n### Instruction:\na\n\n### Response:\n{b</s>}\n\n### Instruction:\nq\n\n### "
	        "Input:\ni\n\n### Response:\n{o</s>}",
	        0);
	check(row, (struct setting){.template = "chatml", .chosen = 1},
	        TURN("system", "s") TURN("user", "a") SAID("b") TURN("user", "q\ni") SAID("o"), 2);
}

/* A row that is cut loses its end; it is counted. */
static void test_cut(void **state)
{
	struct tokenizer *t = make_tokenizer(with_eos);
	struct dataset *d = NULL;

	(void)state;
	assert_int_equal(open_rows(&d, t, ROW(U("a") "," A("b") "," U("c") "," A("dddd")),
	                         (struct setting){.template = "chatml", .max_length = 24}),
	        0);
	assert_int_equal(d->counts.turn_ends, 1);
	assert_int_equal(d->counts.turn_ends_cut, 1);
	dataset_close(d);
	tokenizer_close(t);
}

static void test_refused(void **state)
{
	static const struct {
		const char *rows, *template, *says;
	} cases[] = {
	        {ROW(U("a") "," A("b")), NULL,
	                "rows.jsonl:1: the model has no chat template; set chat_template to one of chatml, "
	                "llama2, llama3"},
	        {ROW(U("a") "," A("b")), "chatml2",
	                "chat_template=chatml2 is not a file, not a template of the model, and not one of "
	                "chatml"},
	        /* llama3's end of turn is no token here */
	        {ROW(U("a") "," A("b")), "llama3",
	                "choose another template with chat_template; this tokenizer works with chatml, "
	                "llama2, "},
	        {ROW(U("a") "," A("b")),
	                "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}",
	                "writes no end-of-turn token"},
	        /* {% generation %} without the end */
	        {ROW(U("a") "," A("b")),
	                "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == "
	                "'assistant' %}{% generation %}"
	                "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ "
	                "'<|im_end|>\n' }}{% endfor %}",
	                "writes no end-of-turn token"},
	        /* every content stands in two places */
	        {ROW(U("a") "," A("b") "," U("c") "," A("d")),
	                "{{ messages | map(attribute='content') | join(' ') }}" CHATML,
	                "does not write messages[1] in a place of its own"},
	        {ROW(U("a") "," A("b")), "{{ raise_exception('no chats today') }}", "rows.jsonl:1: "},
	        {ROW(U("a") ","
	                    "{\"role\":\"assistant\"}"),
	                "chatml",
	                "messages[1] has no text under \"content\"; it has \"role\"; set field_content"},
	        {ROW("{\"content\":\"a\"}"), "chatml",
	                "messages[0] has no text under \"role\"; it has \"content\"; set field_role"},
	        {ROW("{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}"), "chatml",
	                "messages[0].content[0] is of type image_url; only text is supported"},
	        {"{\"conversations\":[{\"from\":\"narrator\",\"value\":\"a\"}]}", "chatml",
	                "conversations[0].from is 'narrator'"},
	        {"{\"conversations\":[{\"from\":\"function_call\",\"value\":\"x\"}]}", "chatml",
	                "must be JSON with name and arguments"},
	        {"{\"messages\":[" A("b") "],\"tools\":\"x\"}", "chatml", "\"tools\" is not valid JSON"},
	        {"{\"messages\":[" U(
	                 "a") ",{\"role\":\"assistant\",\"content\":\"b\",\"tool_calls\":[{\"function\":"
	                      "{\"name\":\"find\"}}]}]}",
	                "chatml", "messages[1]: the template chatml does not write tool calls"},
	        {"{\"messages\":[" U("a") "," A("b") "],\"tools\":[{\"name\":\"find\"}]}", "chatml",
	                "the template chatml does not write the row's tools"},
	        /* its name stands in the chat all the same */
	        {"{\"messages\":[" U("find") "," A("b") "],\"tools\":[{\"name\":\"find\"}]}", "chatml",
	                "the template chatml does not write the row's tools"},
	        {ROW(U("a")), "chatml", "no chat has an assistant turn (the first row is "},
	        {ROW(U("a") "," A("b")), "chatlm", "; did you mean chatml?"},
	        {ROW(U("a") "," A("b")), "qwen3", "; without the key, ferry uses the model's own template"},
	        {"{\"messages\":[]}", "chatml", "the chat has no messages"},
	        /* roles that are misspelt, in templates that leave them out, write them, or take all but one
	           for the other */
	        {ROW(U("a") "," A("b") ",{\"role\":\"User\",\"content\":\"c\"}," A("d")), "zephyr",
	                "rows.jsonl:1: messages[2].role is \"User\"; did you mean user?"},
	        {ROW("{\"role\":\"System\",\"content\":\"c\"}," U("a") "," A("b")), "chatml",
	                "messages[0].role is \"System\"; did you mean system?"},
	        {ROW(U("a") ",{\"role\":\"asistant\",\"content\":\"b\"}"), "alpaca",
	                "messages[1].role is \"asistant\"; did you mean assistant?"},
	        {ROW(U("a") "," A("b") ",{\"role\":\"tool\",\"content\":\"a\"}," A("d")), "zephyr",
	                "the template zephyr leaves out messages[2] with the role \"tool\""},
	        /* a system message that only counts in front */
	        {ROW(U("a") "," S("late") "," A("b")),
	                "{% for m in messages %}{% if loop.first or m.role != 'system' %}{{ '<|im_start|>' + "
	                "m.role + "
	                "'\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if "
	                "add_generation_prompt %}"
	                "{{ '<|im_start|>assistant\n' }}{% endif %}",
	                "leaves out messages[1] with the role \"system\""},
	        {ROW(U("a") "," A("b")), "{% for %}", "own.jinja:1: "},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check_refused(cases[i].rows, (struct setting){.template = cases[i].template}, cases[i].says);
}

/* Places of a model's template, and the choice for chats with tools. */
static void test_model_template(void **state)
{
	static const char config[] =
	        "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</"
	        "s>\"},\"chat_template\":[{\"name\":\"default\","
	        "\"template\":\"D{{ eos_token "
	        "}}\"},{\"name\":\"tool_use\",\"template\":\"T\"},{\"name\":\"rag\",\"template\":\"R\"}]}";
	static const struct {
		const char *choice, *tools, *text;
	} cases[] = {{NULL, NULL, "D</s>"}, {NULL, "[{}]", "T"}, {"rag", NULL, "R"}, {"alpaca", NULL, "<s>"}};
	struct tokenizer *t = make_tokenizer(config);

	(void)state;
	for (int file = 0; file < 2; file++) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			struct chat_template_options o = {
			        .choice = cases[i].choice, .dir = temp_dir, .tokenizer = t};
			struct chat chat = {.messages = json_array(),
			        .tools = cases[i].tools ? json_loads(cases[i].tools, 0, NULL) : NULL};
			struct chat_template *template = NULL;
			struct jinja_output out;

			assert_int_equal(chat_template_open(&template, &o), 0);
			assert_int_equal(chat_template_render(template, &out, &chat, 0, CHAT_PROMPT_OFF), 0);
			assert_string_equal(out.text, file && i == 0 ? "F" : cases[i].text);
			jinja_output_free(&out);
			chat_template_close(template);
			chat_free(&chat);
		}
		mem_free(write_file("chat_template.jinja", "F")); /* goes before the configuration's */
	}
	tokenizer_close(t);
	char *path = file_join(temp_dir, "chat_template.jinja");

	assert_int_equal(unlink(path), 0);
	mem_free(path);
}

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(temp_dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char *command = mem_printf("rm -r %s", temp_dir);
	int rc = system(command);

	(void)state;
	mem_free(command);
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_turns),
	        cmocka_unit_test(test_templates),
	        cmocka_unit_test(test_shapes),
	        cmocka_unit_test(test_tool_calls),
	        cmocka_unit_test(test_rare_templates),
	        cmocka_unit_test(test_flags),
	        cmocka_unit_test(test_formats),
	        cmocka_unit_test(test_roles),
	        cmocka_unit_test(test_alpaca),
	        cmocka_unit_test(test_cut),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_model_template),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

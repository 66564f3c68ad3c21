/* links: data */
/* Pairs of answers: their rows in every form, what is left out, and refusals. */
#include "tests/pair_rows.h"

static void check(const char *rows, struct dataset_options o, const char *want)
{
	struct dataset *d = open_good(rows, o);
	struct str got = {0};

	assert_int_equal(d->format, DATASET_FORMAT_PREFERENCE);
	assert_int_equal(d->is_paired, 1);
	assert_int_equal(d->row_count % 2, 0);
	for (int64_t row = 0; row < d->row_count; row++) {
		str_add(&got, row ? "#" : "");
		show(&got, d, row);
	}
	assert_string_equal(got.data, want);
	str_free(&got);
	dataset_close(d);
}

#define U(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define S(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define HUMAN(text) "{\"from\":\"human\",\"value\":\"" text "\"}"
#define GPT(text) "{\"from\":\"gpt\",\"value\":\"" text "\"}"
#define PAIR(prompt, chosen, rejected)                                                                       \
	"{\"prompt\":" prompt ",\"chosen\":" chosen ",\"rejected\":" rejected "}\n"
#define NO_PROMPT(chosen, rejected) "{\"chosen\":" chosen ",\"rejected\":" rejected "}\n"

#define TURN(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
#define SAID(text) "<|im_start|>assistant\n{" text "<|im_end|>}\n"

static int str_ends(const char *text, const char *end)
{
	return strlen(text) >= strlen(end) && !strcmp(text + strlen(text) - strlen(end), end);
}

static void check_counts(
        const char *rows, struct dataset_options o, const char *kept, struct dataset_counts want)
{
	struct dataset *d = open_good(rows, o);
	int64_t tokens = 0, targets = 0;

	check(rows, o, kept);
	for (int64_t row = 0; row < d->row_count; row++) {
		tokens += dataset_row_tokens(d, row);
		targets += dataset_row_targets(d, row);
	}
	assert_int_equal(d->token_count, tokens);
	assert_int_equal(d->target_count, targets);
	assert_int_equal(d->counts.records, want.records);
	assert_int_equal(d->counts.truncated, want.truncated);
	assert_int_equal(d->counts.dropped, want.dropped);
	assert_int_equal(d->counts.without_target, want.without_target);
	assert_int_equal(d->counts.equal_pairs, want.equal_pairs);
	assert_int_equal(d->counts.turn_ends, want.turn_ends);
	assert_int_equal(d->counts.chats, want.chats);
	assert_true(str_ends(d->counts.without_target_first, want.without_target_first));
	assert_true(str_ends(d->counts.equal_pairs_first, want.equal_pairs_first));
	dataset_close(d);
}

/* ---- forms ---- */

static void test_texts(void **state)
{
	static const struct dataset_options o = {0}, inputs = {.inputs = DATASET_INPUTS_TRAIN};
	static const struct dataset_options named = {
	        .names = {.fields = {[ROW_FIELD_CHOSEN] = "good", [ROW_FIELD_REJECTED] = "bad"}}};
	static const char row[] = PAIR("\"2+2?\"", "\" 4\"", "\" 5\"");

	(void)state;
	check(row, o, "2+2?{ 4</s>}#2+2?{ 5</s>}");
	check(row, inputs, "2+2?{ 4</s>}#2+2?{ 5</s>}");
	check(PAIR("\"\"", "\"ab\"", "\"a\""), o, "{ab</s>}#{a</s>}");
	check("{\"prompt\":\"q\",\"chosen_response\":\"b\",\"rejected_response\":\"c\",\"id\":7}", o,
	        "q{b</s>}#q{c</s>}");
	check("{\"good\":\"a\",\"bad\":\"b\",\"prompt\":\"q\",\"chosen\":1}", named, "q{a</s>}#q{b</s>}");
	/* the answers begin with the prompt */
	check(NO_PROMPT("\"Q: a\\nA: yes\"", "\"Q: a\\nA: no\""), o, "Q: a\nA:{ yes</s>}#Q: a\nA:{ no</s>}");
	check(NO_PROMPT("\"Q\\nI think\"", "\"Q\\nI thought so\""), o,
	        "Q\nI{ think</s>}#Q\nI{ thought so</s>}");
	check(NO_PROMPT("\"so be it\"", "\"so be\""), o, "so be{ it</s>}#so be{</s>}");
	check(NO_PROMPT("\"(a)x\"", "\"(a)y\""), o, "(a){x</s>}#(a){y</s>}");
	check("{\"prompt\":null,\"chosen\":\"q a\",\"rejected\":\"q b\"}", o, "q{ a</s>}#q{ b</s>}");
}

#define ENDS_CHOSEN(more, messages, rejected)                                                                \
	"{" more "\"messages\":[" messages "],\"rejected_response\":" rejected "}"

static void test_chats(void **state)
{
	static const struct dataset_options o = {.inputs = DATASET_INPUTS_TRAIN};
	static const struct dataset_options last = {.turns = DATASET_TURNS_LAST};
	static const struct dataset_options wider = {
	        .names.fields = {[ROW_FIELD_INSTRUCTION] = "instruction,query"}};
	static const char want[] = TURN("user", "q") SAID("a") "#" TURN("user", "q") SAID("b");
	static const char long_want[] = TURN("system", "s") TURN("user", "q") TURN("assistant", "o")
	        TURN("user", "r") SAID("a") "#" TURN("system", "s") TURN("user", "q") TURN("assistant", "o")
	                TURN("user", "r") SAID("b");

	(void)state;
	check(PAIR("[" U("q") "]", "[" A("a") "]", "[" A("b") "]"), o, want);
	check(PAIR("[" U("q") "]", A("a"), A("b")), o, want);
	check(PAIR("[" U("q") "]", "\"a\"", "\"b\""), o, want);
	check(PAIR("\"q\"", "[" A("a") "]", "[" A("b") "]"), o, want);
	/* whole conversations: alone, beside their prompt (ultrafeedback), beside a copy of one of them */
	check(NO_PROMPT("[" U("q") "," A("a") "]", "[" U("q") "," A("b") "]"), o, want);
	check(PAIR("\"q\"", "[" U("q") "," A("a") "]", "[" U("q") "," A("b") "]"), o, want);
	check("{\"chosen\":[" U("q") "," A("a") "],\"rejected\":[" U("q") "," A("b") "],\"messages\":[" U(
	              "q") "," A("a") "]}",
	        o, want);
	/* conversations that agree keep their last message as the answer */
	check(NO_PROMPT("[" U("q") "," A("a") "]", "[" U("q") "," A("a") "]"), o,
	        TURN("user", "q") SAID("a") "#" TURN("user", "q") SAID("a"));
	check(NO_PROMPT("[" U("q") "," A("a") "]", "[" U("q") "," A("a") "," U("r") "," A("b") "]"), o,
	        TURN("user", "q") SAID("a") "#" TURN("user", "q") SAID("a") TURN("user", "r") SAID("b"));
	/* an answer in the prompt is not trained, whatever its flags say */
	check(PAIR("[" S("s") "," U("q") "," A("o") "," U("r") "]", "[" A("a") "]", "[" A("b") "]"), o,
	        long_want);
	check(NO_PROMPT("[" S("s") "," U("q") "," A("o") "," U("r") "," A("a") "]",
	              "[" S("s") "," U("q") "," A("o") "," U("r") "," A("b") "]"),
	        o, long_want);
	check(PAIR("[" U("q") ",{\"role\":\"assistant\",\"content\":\"o\",\"train\":true}," U("r") "]",
	              "[" A("a") "]", "[" A("b") "]"),
	        o,
	        TURN("user", "q") TURN("assistant", "o") TURN("user", "r") SAID("a") "#" TURN("user", "q")
	                TURN("assistant", "o") TURN("user", "r") SAID("b"));
	/* several turns after the prompt */
	check(PAIR("[" U("q") "]", "[" A("a") "," U("r") "," A("c") "]", "[" A("b") "]"), o,
	        TURN("user", "q") SAID("a") TURN("user", "r") SAID("c") "#" TURN("user", "q") SAID("b"));
	check(PAIR("[" U("q") "]", "[" A("a") "," U("r") "," A("c") "]", "[" A("b") "]"), last,
	        TURN("user", "q") TURN("assistant", "a") TURN("user", "r") SAID("c") "#" TURN("user", "q")
	                SAID("b"));
	/* as ms-swift has them: the chat ends with the chosen answer, whose other members count */
	check(ENDS_CHOSEN("", U("q") "," A("a"), "\"b\""), o, want);
	check(ENDS_CHOSEN("", U("q") "," A("a"), "\"b\""), wider, want);
	check(ENDS_CHOSEN("\"prompt\":\"p\",", U("q") "," A("a"), "\"b\""), o, want);
	check(ENDS_CHOSEN("", U("q") "," A("a"), "[" A("b") "]"), o, want);
	check(ENDS_CHOSEN("", U("q") "," A("a"), "[" U("q") "," A("b") "]"), o, want);
	check(ENDS_CHOSEN("",
	              U("q") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}",
	              "\"b\""),
	        o, want);
	/* the names of ShareGPT, as LLaMA-Factory has them, and a system text beside them */
	check("{\"conversations\":[" HUMAN("q") "],\"chosen\":" GPT("a") ",\"rejected\":" GPT("b") "}", o,
	        want);
	check("{\"system\":\"s\",\"conversations\":[" HUMAN("q") "," GPT("o") "," HUMAN(
	              "r") "],\"chosen\":" GPT("a") ",\"rejected\":" GPT("b") "}",
	        o, long_want);
	check("{\"messages\":[" U("q") "],\"chosen\":\"a\",\"rejected\":\"b\"}", o, want);
	check("{\"messages\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\"}", o, want);
	check("{\"system\":\"s\",\"prompt\":[" S("s") "," U("q") "," A("o") "," U(
	              "r") "],\"chosen\":\"a\",\"rejected\":\"b\"}",
	        o, long_want);
}

static void test_alpaca(void **state)
{
	static const struct dataset_options chat = {.alpaca = DATASET_ALPACA_CHAT}, stanford = {0};
	static const struct dataset_options question = {
	        .alpaca = DATASET_ALPACA_CHAT, .names = {.fields = {[ROW_FIELD_INSTRUCTION] = "prompt"}}};
	static const char row[] =
	        "{\"instruction\":\"q\",\"input\":\"i\",\"chosen\":\"a\",\"rejected\":\"b\"}";
	struct str prompt = {0}, want = {0};

	(void)state;
	check(row, chat, TURN("user", "q\ni") SAID("a") "#" TURN("user", "q\ni") SAID("b"));
	dataset_alpaca_prompt(&prompt, DATASET_ALPACA_STANFORD, "q", 1, "i", 1);
	str_printf(&want, "%s{a</s>}#%s{b</s>}", prompt.data, prompt.data);
	check(row, stanford, want.data);
	check(PAIR("\"q\"", "\"a\"", "\"b\""), question,
	        TURN("user", "q") SAID("a") "#" TURN("user", "q") SAID("b"));
	check("{\"instruction\":\"q\",\"history\":[[\"x\",\"y\"]],\"system\":\"s\",\"chosen\":\"a\","
	      "\"rejected\":"
	      "\"b\"}",
	        chat,
	        TURN("system", "s") TURN("user", "x") TURN("assistant", "y") TURN("user", "q")
	                SAID("a") "#" TURN("system", "s") TURN("user", "x") TURN("assistant", "y")
	                        TURN("user", "q") SAID("b"));
	str_free(&want);
	str_free(&prompt);
	str_printf(&want,
	        "s\n\n### Instruction:\nx\n\n### Response:y</s>\n\n### Instruction:\nq\n\n### Response:");
	str_printf(&prompt, "%s{a</s>}#%s{b</s>}", want.data, want.data);
	check("{\"instruction\":\"q\",\"history\":[[\"x\",\"y\"]],\"system\":\"s\",\"chosen\":\"a\","
	      "\"rejected\":"
	      "\"b\"}",
	        stanford, prompt.data);
	str_free(&want);
	str_free(&prompt);
}

/* Ids of another program: nothing is added to them. */
static void test_ids(void **state)
{
	static const struct {
		const char *rows, *says;
	} wrong[] = {
	        {PAIR("[5]", "[6]", "\"b\""), "\"chosen\" and \"rejected\" must both be lists of token ids"},
	        {PAIR("[5]", "[6]", A("b")), "must both be lists of token ids"},
	        {PAIR("[5]", "[6]", "[" A("b") "]"), "must both be lists of token ids"},
	        {PAIR("\"q\"", "[6]", "[7]"), "\"prompt\" must be token ids, as the answers are"},
	        {PAIR("[5]", "[6, 7.5]", "[7]"), "chosen[1] is a real number"},
	        {PAIR("[5]", "[6]", "[-1]"), "rejected[0] is -1; the vocabulary has ids 0 to 104"},
	        {PAIR("[105]", "[6]", "[7]"), "prompt[0] is 105; the vocabulary has ids 0 to 104"}};
	static const struct dataset_options o = {.vocab_count = CHAT_TOKENIZER_VOCAB};
	struct dataset *d = NULL;

	(void)state;
	check(PAIR("[66, 67]", "[68]", "[69, 70]"), o, "ab{c}#ab{de}");
	check("{\"prompt_ids\":[66],\"chosen_ids\":[68],\"rejected_ids\":[69]}", o, "a{c}#a{d}");
	check(PAIR("[]", "[66, 68]", "[66, 69]"), o, "{ac}#{ad}");
	check_counts(PAIR("[66]", "[68]", "[]") PAIR("[66]", "[68]", "[69]"), o, "a{c}#a{d}",
	        (struct dataset_counts){
	                .records = 2, .without_target = 1, .without_target_first = "rows.jsonl:1"});
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		if (open_rows(&d, wrong[i].rows, o) != ERR_INPUT || !strstr(err_text(), wrong[i].says))
			fail_msg("%s: %s", wrong[i].rows, err_text());
}

/* Each half has the ids and labels of a row of prompt and completion. */
static void test_as_completions(void **state)
{
	static const struct dataset_options o = {.max_length_tokens = 40};
	static const char *const prompts[] = {
	        "\"tell me a number: \"", "[" S("be short") "," U("a number?") "]"};
	static const char *const answers[2][2] = {{"\"7</s>\"", "\" seven of nine, a long answer\""},
	        {"[" A("7") "]", "[" A(" seven ") "," U("so?") "," A("no") "]"}};

	(void)state;
	for (int form = 0; form < 2; form++) {
		struct str pair = {0}, halves = {0};
		struct dataset *d, *c;

		str_printf(&pair, "{\"prompt\":%s,\"chosen\":%s,\"rejected\":%s}\n", prompts[form],
		        answers[form][0], answers[form][1]);
		for (int i = 0; i < 2; i++)
			str_printf(&halves, "{\"prompt\":%s,\"completion\":%s}\n", prompts[form],
			        answers[form][i]);
		d = open_good(pair.data, form ? (struct dataset_options){0} : o);
		c = open_good(halves.data, form ? (struct dataset_options){0} : o);
		assert_int_equal(c->is_paired, 0);
		assert_int_equal(d->row_count, 2);
		for (int64_t row = 0; row < 2; row++) {
			assert_int_equal(dataset_row_tokens(d, row), dataset_row_tokens(c, row));
			assert_int_equal(dataset_row_targets(d, row), dataset_row_targets(c, row));
			for (int64_t t = 0; t < dataset_row_tokens(d, row); t++) {
				int32_t id = dataset_row_ids(d, row)[t], label = dataset_label(d, row, t);

				assert_int_equal(id, dataset_row_ids(c, row)[t]);
				assert_int_equal(label, dataset_label(c, row, t));
			}
		}
		dataset_close(d);
		dataset_close(c);
		str_free(&pair);
		str_free(&halves);
	}
}

/* ---- what is left out ---- */

static void test_long_pairs(void **state)
{
	static const char rows[] = PAIR("\"12\"", "\"34\"", "\"3\"") PAIR("\"12\"", "\"345\"", "\"3\"")
	        PAIR("\"12\"", "\"3\"", "\"345678\"") PAIR("\"12345\"", "\"6\"", "\"7\"");
	struct dataset_options o = {.max_length_tokens = 5};
	struct dataset *d = NULL;

	(void)state;
	/* cut at the end; the last prompt leaves no room for an answer */
	check_counts(rows, o, "12{34</s>}#12{3</s>}#12{345}#12{3</s>}#12{3</s>}#12{345}",
	        (struct dataset_counts){.records = 4,
	                .truncated = 2,
	                .without_target = 1,
	                .without_target_first = "rows.jsonl:4"});
	o.long_rows = DATASET_LONG_ROWS_SPLIT;
	check_counts(rows, o, "12{34</s>}#12{3</s>}#12{345}#12{3</s>}#12{3</s>}#12{345}",
	        (struct dataset_counts){.records = 4,
	                .truncated = 2,
	                .without_target = 1,
	                .without_target_first = "rows.jsonl:4"});
	o.long_rows = DATASET_LONG_ROWS_DROP;
	check_counts(rows, o, "12{34</s>}#12{3</s>}", (struct dataset_counts){.records = 4, .dropped = 3});
	o.max_samples = 2;
	check_counts(rows, o, "12{34</s>}#12{3</s>}", (struct dataset_counts){.records = 2, .dropped = 1});
	o.long_rows = DATASET_LONG_ROWS_ERROR;
	assert_int_equal(open_rows(&d, rows, o), ERR_INPUT);
	assert_non_null(strstr(err_text(), "rows.jsonl:2: the row has 6 tokens and max_length is 5"));
	o = (struct dataset_options){.max_length_tokens = 2};
	assert_int_equal(open_rows(&d, rows, o), ERR_INPUT);
	assert_non_null(
	        strstr(err_text(), "no pair is left: 0 longer than max_length were dropped, 4 had an"));
	assert_non_null(strstr(err_text(), "rows.jsonl:1); a larger max_length may help"));
	o.long_rows = DATASET_LONG_ROWS_DROP;
	assert_int_equal(open_rows(&d, rows, o), ERR_INPUT);
	assert_non_null(strstr(err_text(), "no pair is left: 4 longer than max_length were dropped"));
}

/* Without an end-of-turn token of its own, the last user turn leaves a chat without a target. */
static void test_untrained_pairs(void **state)
{
	static const char rows[] = PAIR("[" U("q") "]", "[" A("a") "]", "[" U("b") "]") PAIR("[" U("q") "]",
	        "[" A("a") "]", "[" A("a") "]") PAIR("[" U("q") "]", "[" A("a") "]", "[" A("") "]");

	(void)state;
	check_counts(rows, (struct dataset_options){0},
	        TURN("user", "q") SAID("a") "#" TURN("user", "q") SAID("a") "#" TURN("user", "q")
	                SAID("a") "#" TURN("user", "q") SAID(""),
	        (struct dataset_counts){.records = 3,
	                .without_target = 1,
	                .equal_pairs = 1,
	                .turn_ends = 4,
	                .chats = 4,
	                .without_target_first = "rows.jsonl:1",
	                .equal_pairs_first = "rows.jsonl:2"});
}

static void test_refused(void **state)
{
	static const struct {
		const char *rows, *says;
	} cases[] = {
	        {PAIR("\"q\"", "\"a\"", "\"b\"") "{\"prompt\":\"q\",\"chosen\":\"a\"}",
	                "rows.jsonl:2: \"rejected\" is missing; the row has \"prompt\", \"chosen\"; set "
	                "field_rejected"},
	        {PAIR("\"q\"", "\"a\"", "\"b\"") PAIR("\"q\"", "null", "\"b\""),
	                "rows.jsonl:2: \"chosen\" is null; expected a text or a list of messages"},
	        {PAIR("\"q\"", "\"a\"", "7"), "rows.jsonl:1: \"rejected\" is an integer"},
	        {PAIR("7", "\"a\"", "\"b\""),
	                "rows.jsonl:1: \"prompt\" is an integer; expected a text or a list of messages"},
	        {PAIR("\"q\"", "\"a\"", "[" A("b") "]"), "must both be texts, or both lists of messages"},
	        {PAIR("\"q\"", "[]", "[" A("b") "]"), "rows.jsonl:1: \"chosen\" has no messages"},
	        {PAIR("7", "[" A("a") "]", "[" A("b") "]"), "\"prompt\" is an integer"},
	        {PAIR("[]", "\"a\"", "[]"), "must both be texts"},
	        {PAIR("[" U("q") "]", "[" A("a") "]", "[7]"),
	                "rows.jsonl:1: \"chosen\" and \"rejected\" must both be lists of token ids"},
	        {PAIR("[" U("q") "]", "[" A("a") "]", "[{\"role\":\"assistant\"}]"),
	                "messages[0] has no text under \"content\""},
	        {ENDS_CHOSEN("", U("q") ",{\"role\":\"assistant\"}", "\"b\""),
	                "messages[0] has no text under \"content\""},
	        {PAIR("\"q\"", "[\"a\"]", "[\"b\"]"),
	                "rows.jsonl:1: \"chosen\": the first entry is a string; expected a message"},
	        {NO_PROMPT("\"yes\"", "\"no\""),
	                "rows.jsonl:1: no prompt: chosen and rejected do not begin alike; the row has "
	                "\"chosen\", \"rejected\"; set field_prompt"},
	        {NO_PROMPT("\"yes\"", "\"yesterday\""), "no prompt"},
	        {NO_PROMPT("[" U("q") "," A("a") "]", "[" U("r") "," A("b") "]"), "no prompt"},
	        {NO_PROMPT("[" A("a") "]", "[" A("b") "]"), "no prompt"},
	        {"{\"question\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\"}", "the row has \"question\""},
	        {"{\"prompt\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\",\"tools\":[{\"name\":\"f\"}]}",
	                "\"tools\" of the row would be lost"},
	        {"{\"instruction\":[],\"chosen\":\"a\",\"rejected\":\"b\"}",
	                "no prompt: it is an empty list"},
	        {PAIR("[]", "[" A("a") "]", "[" A("b") "]"), "no prompt: it is an empty list"},
	        {PAIR("\"q\"", "\"a\"", "\"b\"") "{\"prompt\":\"q\",", "rows.jsonl:2"},
	        {PAIR("\"q\"", "\"a\"", "\"b\"") "[1]", "rows.jsonl:2: an array; expected an object"},
	        {"", "the file has no rows"},
	};
	struct dataset_options o = {0};
	struct dataset *d = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int rc = open_rows(&d, cases[i].rows, o);

		if (rc != ERR_INPUT || d || !strstr(err_text(), cases[i].says))
			fail_msg("%s gave %d: %s", cases[i].rows, rc, rc ? err_text() : "");
	}
	o.names.fields[ROW_FIELD_CHOSEN] = "good";
	assert_int_equal(open_rows(&d, cases[0].rows, o), ERR_INPUT);
	assert_non_null(strstr(err_text(), "no column \"good\" (set by field_chosen)"));
}

/* Pairs where none are wanted, and other rows where only pairs are. */
static void test_wanted(void **state)
{
	static const char pairs[] = PAIR("\"q\"", "\"a\"", "\"b\""),
	                  plain[] = "{\"prompt\":\"q\",\"completion\":\"a\"}";
	static const char both[] = "{\"messages\":[" U("q") "," A("a") "],\"chosen\":[" U("q") "," A(
	        "a") "],\"rejected\":[" U("q") "," A("b") "]}";
	struct dataset_options o = {.pairs = DATASET_PAIRS_NONE};
	struct dataset *d = NULL;
	char *text;

	(void)state;
	assert_int_equal(open_rows(&d, pairs, o), ERR_INPUT);
	assert_non_null(strstr(err_text(), "rows.jsonl:1: pairs of a chosen and a rejected answer; set "
	                                   "preference_loss=sigmoid to train on pairs"));
	d = open_good(both, o);
	assert_int_equal(d->format, DATASET_FORMAT_MESSAGES);
	assert_string_equal(d->counts.unread_columns, "chosen, rejected");
	dataset_close(d);
	d = NULL;
	o.pairs = DATASET_PAIRS_ONLY;
	assert_int_equal(open_rows(&d, plain, o), ERR_INPUT);
	assert_non_null(
	        strstr(err_text(), "rows.jsonl:1: rows of the format prompt_completion; preference_loss "
	                           "needs pairs"));
	d = open_good(both, o);
	assert_int_equal(d->is_paired, 1);
	dataset_close(d);
	d = NULL;
	text = write_file("text.txt", "abc");
	o.path = text;
	o.tokenizer = letters;
	assert_int_equal(dataset_open(&d, &o), ERR_INPUT);
	assert_non_null(strstr(err_text(), "text.txt: rows of the format text; preference_loss needs pairs"));
	mem_free(text);
}

static void test_sets(void **state)
{
	char *pairs = write_file("pairs.jsonl", PAIR("\"q\"", "\"a\"", "\"b\"")), *list;
	char *plain = write_file("plain.jsonl", "{\"prompt\":\"q\",\"completion\":\"a\"}\n");
	struct dataset_options o = {.tokenizer = letters};
	struct dataset *d = NULL;

	(void)state;
	for (int i = 0; i < 2; i++) {
		o.path = list = mem_printf("%s:1,%s:2", i ? plain : pairs, i ? pairs : plain);
		assert_int_equal(dataset_open(&d, &o), ERR_INPUT);
		assert_non_null(strstr(err_text(), "/pairs.jsonl holds pairs of answers and "));
		assert_non_null(
		        strstr(err_text(), "/plain.jsonl does not; all data sets must hold pairs, or none"));
		mem_free(list);
	}
	o.path = list = mem_printf("%s,%s", pairs, pairs);
	assert_int_equal(dataset_open(&d, &o), 0);
	assert_int_equal(d->row_count, 4);
	assert_int_equal(d->sets[1].first_row, 2);
	dataset_close(d);
	mem_free(list);
	mem_free(plain);
	mem_free(pairs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_texts),
	        cmocka_unit_test(test_chats),
	        cmocka_unit_test(test_alpaca),
	        cmocka_unit_test(test_ids),
	        cmocka_unit_test(test_as_completions),
	        cmocka_unit_test(test_long_pairs),
	        cmocka_unit_test(test_untrained_pairs),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_wanted),
	        cmocka_unit_test(test_sets),
	};

	return cmocka_run_group_tests(tests, set_up, clean_up);
}

/* links: cli */
/* What a terminal of 80 columns shows: no line is wider, and none is broken within a word. */
#include "cli/screen.h"
#include "config/table.h"
#include "tests/run_fixture.h"

#include <pty.h>

enum { COLUMNS = 80 };

static struct run_model tiny;

/* ---- folding ---- */

static void test_fold(void **state)
{
	static const struct {
		const char *parts[3], *lines;
		int columns;
	} rows[] = {
	        {{"run      one two three four\n"}, "run      one two\n         three four\n", 20},
	        {{"run      one two ", "three", " four\n"}, "run      one two \n         three four\n", 20},
	        {{"warning: one two three four\n"}, "warning: one two\n  three four\n", 18},
	        {{"one two three four\n"}, "one two three four\n", 0},
	        {{"one two three four\n"}, "one two three four\n", 18},
	        {{"a/path/without/any/blank\n"}, "a/path/without/any/blank\n", 20},
	        {{"run      a/path/without/any/blank\n"}, "run      a/path/without/any/blank\n", 20},
	        {{"\u00fc\u00fc\u00fc\u00fc \u00fc\u00fc\u00fc\u00fc\n"},
	                "\u00fc\u00fc\u00fc\u00fc \u00fc\u00fc\u00fc\u00fc\n", 9},
	        {{"\u4e2d\u6587 \u4e2d\u6587\n"}, "\u4e2d\u6587\n  \u4e2d\u6587\n", 8},
	        {{"\u4e2d\u6587 \u4e2d\u6587\n"}, "\u4e2d\u6587 \u4e2d\u6587\n", 9},
	        {{"u\u0308u\u0308 u\u0308u\u0308\n"}, "u\u0308u\u0308 u\u0308u\u0308\n", 5},
	        {{"device               one two\n"}, "device\n  one two\n", 20},
	        {{"\n\none two three\n"}, "\n\none two\n  three\n", 8},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct screen_fold fold = {0};
		struct str out = {0};

		for (int p = 0; p < 3 && rows[i].parts[p]; p++)
			screen_fold(&out, &fold, rows[i].parts[p], rows[i].columns);
		assert_string_equal(out.data, rows[i].lines);
		str_free(&out);
	}
}

static void test_cut(void **state)
{
	static const struct {
		const char *text;
		int columns, bytes;
	} rows[] = {{"abc", 2, 2}, {"abc", 3, 3}, {"abc", 9, 3}, {"\u00fc\u00fc", 1, 2},
	        {"\u4e2d\u6587", 3, 3}, {"\u4e2d\u6587", 4, 6}, {"u\u0308x", 1, 3}, {"\xff\xff", 1, 1},
	        {"abc", 0, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		assert_int_equal(screen_cut(rows[i].text, rows[i].columns), rows[i].bytes);
	assert_int_equal(screen_cut(NULL, 9), 0);
}

/* ---- on a terminal ---- */

/* What a terminal of 80 x 24 gets from a command. */
static void show(struct str *out, const char *arguments)
{
	struct winsize size = {.ws_row = 24, .ws_col = COLUMNS};
	char command[2000], part[4096];
	int terminal, status;
	ssize_t len;
	pid_t pid = forkpty(&terminal, NULL, NULL, &size);

	if (pid < 0) { /* a chroot without /dev/pts */
		print_message("SKIPPED test_cli_screen: no pseudo terminals here\n");
		skip();
	}
	if (!pid) {
		snprintf(command, sizeof(command), "cd '%s' && exec '%s' %s", work_dir,
		        getenv("FERRY_BINARY"), arguments);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(99);
	}
	while ((len = read(terminal, part, sizeof(part) - 1)) > 0)
		str_add_bytes(out, part, (size_t)len);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(terminal);
	assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
	assert_non_null(out->data);
}

/* A line that \r and erasing began again counts from there. */
static void assert_narrow(const char *text, const char *arguments)
{
	int width = 0;

	for (const char *at = text; *at; at++) {
		if (*at == '\n' || *at == '\r')
			width = 0;
		else if (!strncmp(at, "\033[K", 3))
			at += 2;
		else
			width += ((unsigned char)*at & 0xc0) != 0x80;
		if (width > COLUMNS)
			fail_msg("ferry %s: a line is wider than %d: %.100s", arguments, COLUMNS,
			        at - COLUMNS > text ? at - COLUMNS : text);
	}
}

static void test_commands(void **state)
{
	static const char *const commands[] = {"train tiny.yaml output_dir=first", "plan tiny.yaml",
	        "train tiny.yaml output_dir=second logging_steps=1 per_device_train_batch_size=2 "
	        "gradient_accumulation_steps=12345 max_steps=1 dry_run=on",
	        "plan tiny.yaml --details", "topo", "plan tiny.yaml --details device=host",
	        "train tiny.yaml output_dir=other learning_rate=1e-3 gradient_accumulation_steps=2 "
	        "lr_scheduler_type=constant_with_warmup per_device_train_batch_size=2 weight_decay=0.25",
	        "report first other html=both.html"};

	(void)state;
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		struct str out = {0};

		show(&out, commands[i]);
		assert_narrow(out.data, commands[i]);
		str_free(&out);
	}
}

/* Within a long step the line says where the step is, not how much of it is queued: it names the layer, and
 * its share grows. */
static void test_long_step(void **state)
{
	struct str out = {0};
	int lines = 0, named = 0, first = -1, last = -1;

	(void)state;
	write_file("wide.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":512,\"intermediate_size\":2048,"
	        "\"num_hidden_layers\":4,\"num_attention_heads\":8,\"num_key_value_heads\":8,"
	        "\"max_position_embeddings\":128}");
	assert_ferry(0, NULL, "init config=%s/wide.json output_dir=%s/wide seed=1", work_dir, work_dir);
	show(&out, "train tiny.yaml model=wide output_dir=long max_steps=1 gradient_accumulation_steps=400 "
	           "save_only_model=on");
	assert_narrow(out.data, "train");
	for (const char *at = out.data; (at = strstr(at, "ward, ")); at += strlen("ward, "), lines++) {
		int layer = 0, micro = 0, count = 0, share = -1;

		if (sscanf(at, "ward, layer %d/4, micro-batch %d/%d, %d%%", &layer, &micro, &count, &share) ==
		        4)
			named += layer >= 1 && layer <= 4 && micro >= 1 && micro <= count;
		else if (sscanf(at, "ward, micro-batch %d/%d, %d%%", &micro, &count, &share) != 3)
			fail_msg("%.60s", at);
		if (share < last)
			fail_msg("%d%% after %d%%", share, last);
		first = lines ? first : share;
		last = share;
	}
	str_free(&out);
	if (lines < 4) {
		print_message("SKIPPED test_long_step: a step of 400 micro-batches takes less than two "
		              "seconds here\n");
		skip();
	}
	if (first > 60 || last <= first || named < lines / 2)
		fail_msg("%d%% to %d%% in %d lines, of which %d name a layer", first, last, lines, named);
}

/* A pipe gets a line for a line. */
static void test_pipe(void **state)
{
	struct str out = {0};
	const char *line;

	(void)state;
	assert_ferry(0, &out,
	        "train model=%s data=%s output_dir=%s/piped max_steps=1  "
	        "gradient_accumulation_steps=1234 dry_run=on",
	        tiny.dir, tiny.data, work_dir);
	line = strstr(out.data, "\nrun      ");
	assert_non_null(line);
	assert_true(strcspn(line + 1, "\n") > COLUMNS);
	str_free(&out);
}

static void test_help(void **state)
{
	struct str out = {0};

	(void)state;
	show(&out, "help");
	assert_narrow(out.data, "help");
	str_free(&out);
	for (int v = 0; v < VERB_COUNT; v++) {
		char arguments[40];

		snprintf(arguments, sizeof(arguments), "%s --help", verb_infos[v].name);
		show(&out, arguments);
		assert_narrow(out.data, arguments);
		str_free(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_fold), cmocka_unit_test(test_cut),
	        cmocka_unit_test(test_commands), cmocka_unit_test(test_long_step),
	        cmocka_unit_test(test_pipe), cmocka_unit_test(test_help)};
	int failed;

	ferry_run_begin("screen");
	tiny_model(&tiny);
	write_file("tiny.yaml", "model: tiny\ndata: rows.jsonl\nmax_steps: 3\n");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}

/* links: base */
/* also: tsan */
/* The error of a thread (codes, texts, notes), and levels of the log. */
#include "base/err.h"
#include "base/log.h"
#include "tests/check.h"

#include <pthread.h>

static void set_and_note(void **state)
{
	(void)state;
	assert_int_equal(err_set(ERR_INPUT, "key %d", 7), ERR_INPUT);
	assert_string_equal(err_text(), "key 7");
	assert_int_equal(err_note(ERR_INPUT, "%s:%d", "a.yaml", 3), ERR_INPUT);
	assert_string_equal(err_text(), "a.yaml:3: key 7");
}

static void text_may_be_its_own_argument(void **state)
{
	(void)state;
	err_set(ERR_IO, "inner");
	err_set(ERR_IO, "outer (%s)", err_text());
	assert_string_equal(err_text(), "outer (inner)");
	err_note(ERR_IO, "<%s>", err_text());
	assert_string_equal(err_text(), "<outer (inner)>: outer (inner)");
}

static void long_texts_are_cut(void **state)
{
	char *big = malloc(5000);

	(void)state;
	memset(big, 'x', 4999);
	big[4999] = 0;
	err_set(ERR_IO, "%s", big);
	assert_int_equal(strlen(err_text()), ERR_TEXT_BYTES - 1);
	err_note(ERR_IO, "front");
	assert_int_equal(strlen(err_text()), ERR_TEXT_BYTES - 1);
	assert_memory_equal(err_text(), "front: xxx", 10);
	err_note(ERR_IO, "%s", big);
	assert_true(strlen(err_text()) < ERR_TEXT_BYTES);
	assert_memory_equal(err_text(), "xxx", 3);
	err_set(ERR_IO, "%s: no such file", big);
	assert_string_equal(err_text() + strlen(err_text()) - 17, "xxx: no such file");
	assert_non_null(strstr(err_text(), "x ... x"));
	err_note(ERR_IO, "data=%s", big);
	assert_memory_equal(err_text(), "data=xxx", 8);
	assert_string_equal(err_text() + strlen(err_text()) - 17, "xxx: no such file");
	free(big);
}

static void first_taken_wins(void **state)
{
	struct err e = {0};

	(void)state;
	err_set(0, "left alone");
	assert_int_equal(err_give(&e), 0);
	assert_string_equal(err_text(), "left alone");
	err_set(ERR_IO, "first");
	err_take(&e, ERR_IO);
	err_set(ERR_FIT, "second");
	err_take(&e, ERR_FIT);
	assert_int_equal(e.code, ERR_IO);
	assert_int_equal(err_give(&e), ERR_IO);
	assert_string_equal(err_text(), "first");
}

/* It stays through notes, other words and other threads; the same words are not the same error. */
static void identity_stays(void **state)
{
	struct err e = {0};
	struct err_id first, other;

	(void)state;
	err_process_set(3);
	err_set(ERR_IO, "no room");
	first = err_identity();
	assert_int_equal(first.process, 3);
	err_note(ERR_IO, "rows.bin");
	assert_true(err_same(err_identity(), first));
	err_reword(ERR_IO, "%s; free some", err_text());
	assert_string_equal(err_text(), "rows.bin: no room; free some");
	assert_true(err_same(err_identity(), first));
	err_take(&e, ERR_IO);
	err_set(ERR_IO, "no room");
	other = err_identity();
	assert_false(err_same(other, first));
	assert_int_equal(other.cause, first.cause);
	err_give(&e);
	assert_true(err_same(err_identity(), first));
	err_set(ERR_INPUT, "no room");
	assert_int_not_equal(err_identity().cause, first.cause);
	err_set(ERR_IO, "no room here");
	assert_int_not_equal(err_identity().cause, first.cause);
	assert_false(err_same((struct err_id){0}, (struct err_id){0}));
	other.process = 2;
	assert_false(err_same(other, err_identity()));
	err_process_set(0);
}

struct worker {
	struct err err;
	int number;
};

static void *work(void *argument)
{
	struct worker *w = argument;

	for (int i = 0; i < 1000; i++) {
		char wanted[64];

		err_set(ERR_DEVICE, "worker %d, turn %d", w->number, i);
		snprintf(wanted, sizeof(wanted), "worker %d, turn %d", w->number, i);
		if (strcmp(err_text(), wanted))
			return NULL;
		log_info("worker %d", w->number);
	}
	err_take(&w->err, ERR_DEVICE);
	return NULL;
}

struct lines {
	int counts[3];
	char last[4096];
};

static void count_line(void *context, enum log_level level, const char *line)
{
	struct lines *lines = context;

	lines->counts[level]++;
	snprintf(lines->last, sizeof(lines->last), "%s", line);
}

static void threads_have_their_own(void **state)
{
	enum { WORKERS = 4 };
	struct worker workers[WORKERS] = {0};
	pthread_t threads[WORKERS];
	struct lines lines = {0};

	(void)state;
	err_set(ERR_IO, "mine");
	log_set_sink(count_line, &lines);
	for (int i = 0; i < WORKERS; i++) {
		workers[i].number = i;
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	log_set_sink(NULL, NULL);
	assert_string_equal(err_text(), "mine");
	assert_int_equal(lines.counts[LOG_INFO], WORKERS * 1000);
	for (int i = 0; i < WORKERS; i++) {
		char wanted[64];

		snprintf(wanted, sizeof(wanted), "worker %d, turn 999", i);
		assert_int_equal(err_give(&workers[i].err), ERR_DEVICE);
		assert_string_equal(err_text(), wanted);
	}
}

static void log_levels(void **state)
{
	struct lines lines = {0};
	char *big = malloc(5000);

	(void)state;
	memset(big, 'y', 4999);
	big[4999] = 0;
	log_warn("nobody hears this");
	log_set_sink(count_line, &lines);
	log_debug("a %d", 1);
	assert_string_equal(lines.last, "a 1");
	log_info("b");
	log_warn("%s", big);
	assert_int_equal(strlen(lines.last), 2047);
	log_set_sink(NULL, NULL);
	log_warn("nor this");
	assert_int_equal(lines.counts[LOG_DEBUG], 1);
	assert_int_equal(lines.counts[LOG_INFO], 1);
	assert_int_equal(lines.counts[LOG_WARN], 1);
	free(big);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(set_and_note),
	        cmocka_unit_test(text_may_be_its_own_argument),
	        cmocka_unit_test(long_texts_are_cut),
	        cmocka_unit_test(first_taken_wins),
	        cmocka_unit_test(identity_stays),
	        cmocka_unit_test(threads_have_their_own),
	        cmocka_unit_test(log_levels),
	};

	return cmocka_run_group_tests_name("base_err", tests, NULL, NULL);
}

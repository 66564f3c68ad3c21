/* links: cli */
/* Random plans through the program's entry point, in a user's words: a model, a machine, keys of train,
 * budgets near the plan's needs.
 *
 * plan_check proves each plan (--explain runs it). The test checks the output of `ferry plan`: the parts
 * add up; the peak is within the budget and equal to what the simulated step touched; a step is not
 * shorter than any bound. If a plan does not fit, the test also plans the suggested change, which must
 * fit.
 *
 * FERRY_DRAWS=COUNT makes another number of plans, FERRY_DRAWS=FIRST:COUNT begins at number FIRST;
 * FERRY_SWEEPS does the same for sweeps. A failing draw is reduced word by word before it is shown.
 */
#include "tests/plan_draw.h"
#include "tests/sparing.h"

#include "base/clock.h"

enum { DRAWS = SANITIZED ? 5 : 60, SWEEPS = SANITIZED ? 1 : 4 };

/* ---- what must hold ---- */

static double sum_of(const json_t *object)
{
	const char *key;
	json_t *value;
	double sum = 0;

	json_object_foreach((json_t *)object, key, value) sum += json_number_value(value);
	return sum;
}

#define MUST(condition, ...)                                                                                 \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			str_printf(why, "%s: ", #condition);                                                 \
			str_printf(why, __VA_ARGS__);                                                        \
			return 1;                                                                            \
		}                                                                                            \
	} while (0)

static const char *word_value(const struct draw *d, const char *key)
{
	for (int i = 0; i < d->word_count; i++)
		if (!strncmp(d->words[i], key, strlen(key)) && d->words[i][strlen(key)] == '=')
			return d->words[i] + strlen(key) + 1;
	return NULL;
}

/* A budget in bytes; 0: none is set. */
static double budget_of(const struct draw *d, const char *key)
{
	const char *value = word_value(d, key);

	return value ? strtod(value, NULL) : 0;
}

static int memory_is_wrong(const struct draw *d, const json_t *p, struct str *why)
{
	const json_t *memory = json_object_get(p, "memory");
	double arena = figure(p, "arena_bytes"), gap = figure(memory, "device_gap_bytes"),
	       parts = sum_of(json_object_get(memory, "device")), device = figure(p, "device_bytes"),
	       host = sum_of(json_object_get(memory, "host")), budget = budget_of(d, "vram_budget");

	MUST(device == arena + figure(p, "reserve_bytes"), "%.0f", device);
	MUST(parts + gap == arena, "%.0f + %.0f, %.0f", parts, gap, arena);
	MUST(gap >= 0, "%.0f", gap);
	MUST(figure(p, "arena_touched_bytes") <= arena, "%.0f of %.0f", figure(p, "arena_touched_bytes"),
	        arena);
	MUST(figure(p, "valley_bytes") <= device, "%.0f of %.0f", figure(p, "valley_bytes"), device);
	MUST(!budget || device <= budget, "%.0f of %.0f", device, budget);
	MUST(host + figure(memory, "host_gap_bytes") == figure(p, "host_bytes"), "%.0f of %.0f", host,
	        figure(p, "host_bytes"));
	MUST(figure(memory, "host_gap_bytes") >= 0, "%.0f", figure(memory, "host_gap_bytes"));
	MUST(figure(p, "pinned_bytes") <= figure(p, "host_bytes"), "%.0f", figure(p, "pinned_bytes"));
	MUST(figure(p, "host_bytes") == figure(p, "store_bytes") + figure(p, "staging_bytes") +
	                                        figure(p, "side_bytes") + figure(p, "scratch_bytes") +
	                                        fmax(figure(p, "save_bytes"), figure(p, "load_bytes")),
	        "%.0f", figure(p, "host_bytes"));
	MUST(sum_of(json_object_get(p, "parameters_by_part")) == figure(p, "parameters"), "%.0f",
	        figure(p, "parameters"));
	return 0;
}

static int time_is_wrong(const json_t *p, struct str *why)
{
	static const char *const bounds[] = {
	        "bound_ms", "compute_ms", "h2d_ms", "d2h_ms", "comm_ms", "cpu_ms"};
	double step = figure(p, "step_ms") * (1 + 1e-9) + 1e-4; /* each operation is rounded to 1e-6 */

	for (size_t i = 0; i < sizeof(bounds) / sizeof(*bounds); i++)
		MUST(step >= figure(p, bounds[i]), "%.9g, %s %.9g", step, bounds[i], figure(p, bounds[i]));
	MUST(step >= figure(json_object_get(p, "bus"), "ms"), "%.9g, host memory %.9g", step,
	        figure(json_object_get(p, "bus"), "ms"));
	MUST(figure(p, "tokens_per_s") > 0, "%g", figure(p, "tokens_per_s"));
	return 0;
}

/* What the drawn machine leaves to the run: bytes, or TiB after host_enlarge, less the reserve. */
static double machine_host(const struct draw *d)
{
	static const char before[] = "host:\n  memory: ";
	const char *memory = strstr(d->machine, before);
	char *end;
	double bytes;

	assert_non_null(memory);
	assert_non_null(strstr(memory, "reserve: 1MiB"));
	bytes = strtod(memory + sizeof(before) - 1, &end);
	return (*end == 'T' ? bytes * 0x1p40 : bytes) - 0x1p20;
}

static int host_is_wrong(const struct draw *d, const json_t *p, struct str *why)
{
	double need = figure(p, "host_need_bytes"), limit = figure(p, "host_limit_bytes"),
	       budget = budget_of(d, "ram_budget");
	int fits = json_is_true(json_object_get(p, "fits"));

	MUST(fits == (need <= limit), "%d, %.0f of %.0f", fits, need, limit);
	MUST(!budget || limit == fmin(budget, machine_host(d)), "%.0f, %.0f", limit, budget);
	MUST(need >= figure(p, "host_bytes"), "%.0f, %.0f", need, figure(p, "host_bytes"));
	return 0;
}

/* "; set a=b (then 3 GiB)", "; smallest plan: 3 GiB (123 bytes) with a=b"; NULL: none is said to help. */
static const char *settings_of(const char *said)
{
	const char *memory = strstr(said, " memory; "), *set = memory ? strstr(memory, "; set ") : NULL,
	           *with = strstr(said, " bytes) with ");

	return set ? set + strlen("; set ") : with ? with + strlen(" bytes) with ") : NULL;
}

/* "(123 bytes)" */
static double floor_said(const char *said, const char *bytes)
{
	while (bytes > said && *bytes != '(')
		bytes--;
	return strtod(bytes + 1, NULL);
}

/* Host memory that no draw asks for: ram_budget alone limits it. */
static void host_enlarge(struct draw *d)
{
	char *memory = strstr(d->machine, "host:\n  memory: "),
	     *end = memory ? strchr(memory + 7, '\n') : NULL;
	char rest[sizeof(d->machine)];

	assert_non_null(end);
	snprintf(rest, sizeof(rest), "%s", end);
	snprintf(
	        memory, sizeof(d->machine) - (size_t)(memory - d->machine), "host:\n  memory: 64TiB%s", rest);
}

/* The host: what is said to make it fit does, and where nothing does, the least that is said is enough, and a
 * byte less is not. */
static int host_help_is_wrong(const struct draw *d, const char *said, struct str *why)
{
	const char *with = settings_of(said), *bytes = strstr(said, " bytes)");
	struct draw other = *d;
	struct answer a;
	int wrong;

	if (with)
		words_set(&other, with);
	if (!strstr(said, " (then ")) {
		MUST(bytes, "no floor is said: %s", said);
		host_enlarge(&other);
		word_add(&other, "ram_budget=%.0f", floor_said(said, bytes) - 1);
		draw_answer(&a, &other);
		wrong = a.code != 5;
		answer_free(&a);
		MUST(!wrong, "a byte below the host's floor fits: %s", said);
		word_add(&other, "ram_budget=%.0f", floor_said(said, bytes));
	}
	draw_answer(&a, &other);
	wrong = a.code || !json_is_true(json_object_get(a.json, "fits"));
	if (wrong)
		str_printf(why, "what is said to help the host ends with %d: %s", a.code, a.said);
	answer_free(&a);
	return wrong;
}

/* Plans d with the suggested change. */
static int helped_is_wrong(const struct draw *d, struct str *why)
{
	struct answer a;
	int wrong = 0;

	draw_answer(&a, d);
	if (a.code == 5 && strstr(a.said, "of host memory; ")) { /* the device fits; next, the host */
		wrong = host_help_is_wrong(d, a.said, why);
	} else if (a.code) {
		str_printf(why, "what is said to help ends with %d: %s", a.code, a.said);
		wrong = 1;
	} else {
		wrong = memory_is_wrong(d, a.json, why) || time_is_wrong(a.json, why);
	}
	answer_free(&a);
	return wrong;
}

/* The least that there is, and a byte less. */
static int floor_is_wrong(struct draw *d, double bytes, struct str *why)
{
	struct answer a;
	int wrong;

	d->gpu_memory_bytes = 0x1p42;
	word_add(d, "vram_budget=%.0f", bytes);
	wrong = helped_is_wrong(d, why);
	if (wrong)
		return 1;
	word_add(d, "vram_budget=%.0f", bytes - 1);
	draw_answer(&a, d);
	wrong = a.code != 5;
	if (wrong)
		str_printf(why, "a byte below the floor of %.0f ends with %d", bytes, a.code);
	answer_free(&a);
	return wrong;
}

static int refusal_is_wrong(const struct draw *d, const char *said, struct str *why)
{
	const char *with = settings_of(said), *bytes = strstr(said, " bytes)");
	struct draw other = *d;

	if (with)
		words_set(&other, with);
	if (strstr(said, " (then "))
		return helped_is_wrong(&other, why);
	MUST(bytes, "no floor is said: %s", said);
	MUST(!with || strstr(said, "; smallest plan: "), "%s", said);
	return floor_is_wrong(&other, floor_said(said, bytes), why);
}

static int draw_is_wrong(const struct draw *d, struct str *why)
{
	struct answer a;
	int wrong = 1;

	draw_answer(&a, d);
	if (a.code == 0)
		wrong = memory_is_wrong(d, a.json, why) || time_is_wrong(a.json, why) ||
		        host_is_wrong(d, a.json, why);
	else if (a.code == 5 && strstr(a.said, "of host memory; "))
		wrong = memory_is_wrong(d, a.json, why) || time_is_wrong(a.json, why) ||
		        host_is_wrong(d, a.json, why) || host_help_is_wrong(d, a.said, why);
	else if (a.code == 5)
		wrong = refusal_is_wrong(d, a.said, why);
	else
		str_printf(why, "exit code %d", a.code);
	if (wrong)
		str_printf(why, "\n  said: %s", a.said);
	answer_free(&a);
	return wrong;
}

/* ---- showing ---- */

static int still_wrong(const struct draw *d)
{
	struct str why = {0};
	int wrong = draw_is_wrong(d, &why);

	str_free(&why);
	return wrong;
}

/* Removes every word without which the draw still fails. */
static void draw_shrink(struct draw *d)
{
	struct draw less = *d;

	snprintf(less.machine, sizeof(less.machine), "%s", plain_machine);
	if (still_wrong(&less))
		*d = less;
	for (int i = d->word_count - 1; i >= 0; i--) {
		less = *d;
		memmove(less.words[i], less.words[i + 1], (size_t)(less.word_count - i - 1) * WORD_BYTES);
		less.word_count--;
		if (still_wrong(&less))
			*d = less;
	}
	for (less = *d, less.layers = 1; less.layers < d->layers; less.layers++)
		if (still_wrong(&less))
			*d = less;
}

static void draw_show(struct draw *d, uint64_t number)
{
	char config[TEXT_BYTES + 16], machine[TEXT_BYTES + 16];
	struct str why = {0};

	draw_shrink(d);
	draw_is_wrong(d, &why);
	snprintf(config, sizeof(config), d->config, d->layers);
	snprintf(machine, sizeof(machine), d->machine, d->gpu_memory_bytes);
	printf("draw %" PRIu64 ": %s\n  %s\n%s  ferry plan config.json machine=machine.yaml", number,
	        why.data ? why.data : "", config, machine);
	for (int i = 0; i < d->word_count; i++)
		printf(" %s", d->words[i]);
	printf("\n");
	fflush(stdout);
	str_free(&why);
}

/* The share of pinning memory at the start that counts as a step's time (placement/choice_hosted.h). */
static double sweep_pin_ms(const struct answer *a)
{
	double pin_s = figure(a->json, "pin_s");

	return isfinite(pin_s) ? 1e3 * pin_s / 100 : 0;
}

/* A draw's step within more and more of the device: none is longer than within less (but for the millionth to
 * which steps count as equal, placement/choice.h), and none is without a plan where less has one. Returns how
 * many are; *made: budgets that were compared. */
static uint64_t sweep_count_wrong(uint64_t number, double ratio, uint64_t *made)
{
	double best_ms = INFINITY, least, ms;
	uint64_t wrong = 0;
	struct answer a, with;
	struct draw d;

	draw_make(&d, number);
	host_enlarge(&d);
	word_add(&d, "vram_budget=off");
	d.gpu_memory_bytes = 0x1p42;
	draw_answer(&a, &d);
	least = figure(a.json, "arena_bytes") / 2;
	for (double arena = least; isfinite(least) && arena < 16 * least; arena *= ratio) {
		word_add(&d, "vram_budget=%.0f", figure(a.json, "reserve_bytes") + arena);
		draw_answer(&with, &d);
		ms = figure(with.json, "step_ms") + sweep_pin_ms(&with);
		answer_free(&with);
		if (!isfinite(ms) && !isfinite(best_ms))
			continue;
		++*made;
		if (!(ms <= best_ms * (1 + 2e-6))) {
			printf("sweep %" PRIu64 ", %s: %.6f ms, %.6f within less\n", number,
			        d.words[d.word_count - 1], ms, best_ms);
			wrong++;
		}
		best_ms = fmin(best_ms, ms);
	}
	answer_free(&a);
	return wrong;
}

/* "COUNT" or "FIRST:COUNT" */
static int range_asked(uint64_t *first, uint64_t *count, const char *variable)
{
	const char *asked = getenv(variable);

	if (!asked)
		return 0;
	*first = strchr(asked, ':') ? strtoull(asked, NULL, 10) : 1;
	*count = strtoull(strchr(asked, ':') ? strchr(asked, ':') + 1 : asked, NULL, 10);
	return 1;
}

static void test_draws(void **state)
{
	uint64_t first = 1, count = DRAWS, made = 0, wrong = 0;
	int asked = range_asked(&first, &count, "FERRY_DRAWS");
	double begin = clock_now_s();

	(void)state;
	for (; made < count && wrong < 5; made++) {
		struct str why = {0};
		struct draw d;

		draw_make(&d, first + made);
		if (draw_is_wrong(&d, &why)) {
			wrong++;
			draw_show(&d, first + made);
		}
		str_free(&why);
		if (asked && made % 500 == 499) {
			printf("%" PRIu64 " draws\n", made + 1);
			fflush(stdout);
		}
	}
	printf("%" PRIu64 " draws in %.1f s\n", made, clock_now_s() - begin);
	assert_int_equal(wrong, 0);
}

static void test_sweeps(void **state)
{
	uint64_t first = 1, count = SWEEPS, made = 0, budgets = 0, wrong = 0;
	int asked = range_asked(&first, &count, "FERRY_SWEEPS");
	double begin = clock_now_s();

	(void)state;
	if (getenv("FERRY_DRAWS") && !asked)
		return;
	for (; made < count; made++)
		wrong += sweep_count_wrong(first + made, asked ? 1.05 : 1.3, &budgets);
	printf("%" PRIu64 " sweeps of %" PRIu64 " budgets in %.1f s\n", made, budgets, clock_now_s() - begin);
	assert_int_equal(wrong, 0);
	assert_true(asked || budgets > 4 * made);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_draws), cmocka_unit_test(test_sweeps)};
	int rc;

	for (int i = 0; i < 2; i++)
		capture_fds[i] = memfd_create("captured", MFD_CLOEXEC);
	setvbuf(stderr, NULL, _IOFBF, 1 << 16); /* a list of operations is many lines */
	ferry_run_begin("draws");
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return rc;
}

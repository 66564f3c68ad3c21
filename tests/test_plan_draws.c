/* links: cli */
/* Random plans, by the program's own entry and in a user's words: a model, a machine, keys of train, budgets
 * around what the plan needs. Each is proved by plan_check (--explain does so) and held to what `ferry plan`
 * says of it: parts that make the whole, a peak within the budget and equal to what the simulated step
 * touched, a step no shorter than any bound; and where it does not fit, to what is said to help: that is
 * planned too, and has to fit.
 *
 * A draw follows from its number alone. As many are made as fit in some seconds; FERRY_DRAWS=COUNT makes so
 * many whatever they take, FERRY_DRAWS=FIRST:COUNT from another number on. One that fails is made smaller,
 * word by word, before it is shown. */
#include "tests/ferry_run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sys/mman.h>

enum { WORDS_MAX = 40, WORD_BYTES = 128, TEXT_BYTES = 1024 };

static const double SECONDS = 6; /* of a test program's time */

struct draw {
	char config[TEXT_BYTES];  /* config.json */
	int layers;               /* replaces %d in it */
	char machine[TEXT_BYTES]; /* YAML; empty: none is described */
	double gpu_memory_bytes;  /* replaces %.0f in it */
	char words[WORDS_MAX][WORD_BYTES];
	int word_count;
};

/* What the program did. */
struct answer {
	int code;
	json_t *json;
	char *said; /* its last line on stderr */
};

/* ---- running the program in this process ---- */

static int capture_fds[2];

static char *fd_text(int fd)
{
	off_t size = lseek(fd, 0, SEEK_END);
	char *text = mem_alloc((size_t)size + 1, 1);

	assert_non_null(text);
	assert_int_equal(pread(fd, text, (size_t)size, 0), size);
	assert_int_equal(ftruncate(fd, 0), 0);
	lseek(fd, 0, SEEK_SET);
	return text;
}

/* cli_main with stdout and stderr into files of memory. */
static int run_captured(int argc, char *argv[], char **out, char **err)
{
	int kept[2], code;

	fflush(stdout);
	fflush(stderr);
	for (int i = 0; i < 2; i++) {
		kept[i] = dup(1 + i);
		assert_true(kept[i] >= 0 && dup2(capture_fds[i], 1 + i) >= 0);
	}
	code = cli_main(argc, argv);
	fflush(stdout);
	fflush(stderr);
	for (int i = 0; i < 2; i++) {
		assert_true(dup2(kept[i], 1 + i) >= 0);
		close(kept[i]);
	}
	*out = fd_text(capture_fds[0]);
	*err = fd_text(capture_fds[1]);
	return code;
}

static void file_put(const char *name, const char *text)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	f = fopen(path, "w"); /* file_write_all would wait for the disk */
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0 && !fclose(f));
}

static void answer_free(struct answer *a)
{
	json_decref(a->json);
	mem_free(a->said);
	*a = (struct answer){0};
}

static void draw_answer(struct answer *a, const struct draw *d)
{
	char config[TEXT_BYTES + 16], machine[TEXT_BYTES + 16], paths[2][320], *argv[WORDS_MAX + 8], *out,
	        *err, *last;
	int argc = 0;

	snprintf(config, sizeof(config), d->config, d->layers);
	file_put("config.json", config);
	snprintf(paths[0], sizeof(paths[0]), "%s/config.json", work_dir);
	argv[argc++] = "ferry";
	argv[argc++] = "plan";
	argv[argc++] = paths[0];
	if (*d->machine) {
		snprintf(machine, sizeof(machine), d->machine, d->gpu_memory_bytes);
		file_put("machine.yaml", machine);
		snprintf(paths[1], sizeof(paths[1]), "machine=%s/machine.yaml", work_dir);
		argv[argc++] = paths[1];
	}
	for (int i = 0; i < d->word_count; i++)
		argv[argc++] = (char *)d->words[i];
	argv[argc++] = "threads=1";
	argv[argc++] = "--explain";
	argv[argc++] = "--json";
	argv[argc] = NULL;
	*a = (struct answer){.code = run_captured(argc, argv, &out, &err)};
	if (*out)
		assert_int_equal(json_parse(&a->json, "stdout", out, strlen(out)), 0);
	last = strstr(err, "ferry plan: ");
	a->said = mem_strdup(last ? last : "");
	mem_free(out);
	mem_free(err);
}

/* ---- words ---- */

static int key_length(const char *word)
{
	return (int)strcspn(word, "=");
}

/* key=value in place of the same key's other value, if that is there. */
static void word_set(struct draw *d, const char *word)
{
	int at = 0;

	while (at < d->word_count && (key_length(d->words[at]) != key_length(word) ||
	                                     strncmp(d->words[at], word, (size_t)key_length(word))))
		at++;
	assert_true(at < WORDS_MAX);
	snprintf(d->words[at], WORD_BYTES, "%s", word);
	d->word_count += at == d->word_count;
}

__attribute__((format(printf, 2, 3))) static void word_add(struct draw *d, const char *fmt, ...)
{
	char word[WORD_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(word, sizeof(word), fmt, ap);
	va_end(ap);
	word_set(d, word);
}

/* "key=value key=value" */
static void words_set(struct draw *d, const char *text)
{
	while (*text) {
		char word[WORD_BYTES];
		size_t len = strcspn(text, " \n;");

		snprintf(word, sizeof(word), "%.*s", (int)len, text);
		if (len && strchr(word, '='))
			word_set(d, word);
		text += len;
		if (*text != ' ')
			return;
		text++;
	}
}

/* ---- what must hold ---- */

static double figure(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? json_number_value(value) : NAN;
}

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
	MUST(host <= figure(p, "host_bytes"), "%.0f of %.0f", host, figure(p, "host_bytes"));
	MUST(figure(p, "pinned_bytes") <= figure(p, "host_bytes"), "%.0f", figure(p, "pinned_bytes"));
	MUST(figure(p, "host_bytes") ==
	                figure(p, "store_bytes") + figure(p, "stage_bytes") + figure(p, "save_bytes"),
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

static int host_is_wrong(const struct draw *d, const json_t *p, struct str *why)
{
	double need = figure(p, "host_need_bytes"), limit = figure(p, "host_limit_bytes"),
	       budget = budget_of(d, "ram_budget");
	int fits = json_is_true(json_object_get(p, "fits"));

	MUST(fits == (need <= limit), "%d, %.0f of %.0f", fits, need, limit);
	MUST(!budget || limit == budget, "%.0f, %.0f", limit, budget);
	MUST(need >= figure(p, "host_bytes"), "%.0f, %.0f", need, figure(p, "host_bytes"));
	return 0;
}

/* "(123 bytes)" */
static double floor_said(const char *said, const char *bytes)
{
	while (bytes > said && *bytes != '(')
		bytes--;
	return strtod(bytes + 1, NULL);
}

/* The host: what is said to make it fit does, and where nothing does, the least that is said is enough. */
static int host_help_is_wrong(const struct draw *d, const char *said, struct str *why)
{
	const char *with = strstr(said, ", with "), *bytes = strstr(said, " bytes)");
	struct draw other = *d;
	struct answer a;
	int wrong;

	if (with)
		words_set(&other, with + 7);
	if (!strstr(said, "it fits, in ")) {
		MUST(bytes, "no floor is said: %s", said);
		word_add(&other, "ram_budget=%.0f", floor_said(said, bytes));
	}
	draw_answer(&a, &other);
	wrong = a.code || !json_is_true(json_object_get(a.json, "fits"));
	if (wrong)
		str_printf(why, "what is said to help the host ends with %d: %s", a.code, a.said);
	answer_free(&a);
	return wrong;
}

/* Plans d with what was said to help. */
static int helped_is_wrong(const struct draw *d, struct str *why)
{
	struct answer a;
	int wrong = 0;

	draw_answer(&a, d);
	if (a.code == 5 && strstr(a.said, "of host memory, ")) { /* the device fits; next, the host */
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
	const char *with = strstr(said, " with "), *bytes = strstr(said, " bytes)");
	struct draw other = *d;

	if (with)
		words_set(&other, with + 6);
	if (strstr(said, "it fits, in "))
		return helped_is_wrong(&other, why);
	MUST(bytes, "no floor is said: %s", said);
	MUST(!with || strstr(said, "the least found is "), "%s", said);
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
	else if (a.code == 5 && strstr(a.said, "of host memory, "))
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

/* ---- drawing ---- */

struct dice {
	uint64_t state;
};

static uint64_t dice_bits(struct dice *r) /* splitmix64 */
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static int roll(struct dice *r, int least, int most)
{
	return least + (int)(dice_bits(r) % (uint64_t)(most - least + 1));
}

static int one_in(struct dice *r, int count)
{
	return roll(r, 1, count) == 1;
}

static double spread_roll(struct dice *r, double least, double most) /* as likely in each factor of two */
{
	return least * pow(most / least, (double)(dice_bits(r) >> 11) * 0x1p-53);
}

#define PICK(r, ...)                                                                                         \
	((const char *const[]){__VA_ARGS__}[roll(                                                            \
	        r, 0, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)) - 1)])

static void model_draw(struct draw *d, struct dice *r, int positions)
{
	const char *family = PICK(r, "llama", "llama", "mistral", "qwen2", "qwen3", "gpt2", "gpt_neox");
	int big = one_in(r, 12), kv = 1 << roll(r, 0, 3), heads = kv * roll(r, 1, big ? 8 : 3);
	int head = 2 * roll(r, 1, 16) * (big ? 4 : 1), hidden = heads * head,
	    mlp = (int)spread_roll(r, 1, big ? 30000 : 700),
	    vocabulary = (int)spread_roll(r, 2, big ? 150000 : 3000);

	d->layers = big && one_in(r, 4) ? roll(r, 20, 60) : roll(r, 1, 9);
	if (!strcmp(family, "gpt2")) {
		snprintf(d->config, sizeof(d->config),
		        "{\"model_type\": \"gpt2\", \"vocab_size\": %d, \"n_embd\": %d, \"n_layer\": %%d, "
		        "\"n_head\": %d, \"n_positions\": %d, \"n_inner\": %d}",
		        vocabulary, hidden, heads, positions, mlp);
		return;
	}
	snprintf(d->config, sizeof(d->config),
	        "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": "
	        "%d, "
	        "\"num_hidden_layers\": %%d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
	        "\"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-6, \"layer_norm_eps\": 1e-5, "
	        "\"tie_word_embeddings\": %s%s}",
	        family, vocabulary, hidden, mlp, heads, strcmp(family, "gpt_neox") ? kv : heads, positions,
	        PICK(r, "true", "false"), strcmp(family, "qwen3") ? "" : ", \"head_dim\": 16");
}

static void machine_draw(struct draw *d, struct dice *r)
{
	int gpus = one_in(r, 4) ? 0 : one_in(r, 2) ? 1 : roll(r, 2, 8);

	d->gpu_memory_bytes = one_in(r, 6) ? spread_roll(r, 0x1p27, 0x1p34) : 0x1p42;
	if (one_in(r, 4))
		return;
	snprintf(d->machine, sizeof(d->machine),
	        "name: drawn\ngpus: %d\ngpu:\n  memory: %%.0f\n  bf16_tflops: %.4g\n  fp32_tflops: %.4g\n"
	        "  memory_gbps: %.4g\n  h2d_gbps: %.4g\n  d2h_gbps: %.4g\n  link_gbps: %.4g\nhost:\n"
	        "  memory: %.0f\n  reserve: 1MiB\n  memory_gbps: %.4g\n  gflops: %.4g\n",
	        gpus, spread_roll(r, 1, 2000), spread_roll(r, 1, 100), spread_roll(r, 10, 8000),
	        spread_roll(r, 0.5, 500), spread_roll(r, 0.5, 500), spread_roll(r, 0.5, 900),
	        spread_roll(r, 0x1p22, 0x1p42), spread_roll(r, 2, 900), spread_roll(r, 10, 5000));
}

static void ranks_draw(struct draw *d, struct dice *r)
{
	int node = roll(r, 1, 4), nodes = roll(r, 1, 4);

	if (one_in(r, 2))
		return;
	word_add(d, "world_size=%d", node * nodes);
	word_add(d, "ranks_per_node=%d", node);
	word_add(d, "sharding_strategy=%s",
	        PICK(r, "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"));
	if (one_in(r, 3))
		word_add(d, "reduce_dtype=bf16");
}

static void policy_draw(struct draw *d, struct dice *r, int tokens)
{
	word_add(d, "max_length=%d", tokens);
	word_add(d, "per_device_train_batch_size=%d", one_in(r, 2) ? 1 : roll(r, 1, 9));
	word_add(d, "gradient_accumulation_steps=%d", one_in(r, 2) ? 1 : roll(r, 1, d->layers > 9 ? 2 : 5));
	word_add(d, "cpu_offload=%s",
	        PICK(r, "on", "on", "off", "params", "gradients", "optimizer", "params,gradients",
	                "params,optimizer", "gradients,optimizer"));
	word_add(d, "activations=%s", PICK(r, "auto", "keep", "recompute", "offload"));
	word_add(d, "optimizer_state=%s", PICK(r, "fp32", "bf16", "8bit"));
	word_add(d, "compute_dtype=%s", PICK(r, "bf16", "bf16", "fp32"));
	if (one_in(r, 4))
		word_add(d, "gradient_dtype=fp32");
	word_add(d, "max_grad_norm=%d", roll(r, 0, 1));
	word_add(d, "skip_nonfinite=%s", PICK(r, "on", "off"));
	word_add(d, "schedule=%s", PICK(r, "layer_major", "layer_major", "micro_batch_major"));
	word_add(d, "wrap_policy=%s", PICK(r, "transformer", "transformer", "size", "none"));
	word_add(d, "min_num_params=%.0f", spread_roll(r, 1, 1e7));
	word_add(d, "backward_prefetch=%s", PICK(r, "BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"));
	word_add(d, "forward_prefetch=%s", PICK(r, "on", "off"));
	if (!one_in(r, 3)) /* auto */
		word_add(d, "prefetch_units=%d", roll(r, 1, 5));
}

/* From well below what the plan needs to well above. */
static void budgets_draw(struct draw *d, struct dice *r)
{
	struct answer a;
	int told;

	word_add(d, "vram_budget=off");
	draw_answer(&a, d);
	told = isfinite(figure(a.json, "arena_bytes"));
	if (told && !one_in(r, 4))
		word_add(d, "vram_budget=%.0f",
		        figure(a.json, "reserve_bytes") +
		                fmax(1, figure(a.json, "arena_bytes") * spread_roll(r, 0.2, 4)));
	if (told && one_in(r, 2))
		word_add(d, "ram_budget=%.0f",
		        fmax(1, figure(a.json, "host_need_bytes") * spread_roll(r, 0.3, 2)));
	answer_free(&a);
}

static void draw_make(struct draw *d, uint64_t number)
{
	struct dice r = {number * 0xd1342543de82ef95u};
	int tokens = (int)spread_roll(&r, 1, 3000);

	*d = (struct draw){0};
	model_draw(d, &r, tokens + roll(&r, 0, 50));
	machine_draw(d, &r);
	ranks_draw(d, &r);
	policy_draw(d, &r, tokens);
	budgets_draw(d, &r);
}

/* ---- showing ---- */

static int still_wrong(const struct draw *d)
{
	struct str why = {0};
	int wrong = draw_is_wrong(d, &why);

	str_free(&why);
	return wrong;
}

/* Whatever can go while it stays wrong goes. */
static void draw_shrink(struct draw *d)
{
	struct draw less = *d;

	*less.machine = 0;
	if (*d->machine && still_wrong(&less))
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
	printf("draw %" PRIu64 ": %s\n  %s\n%s  ferry plan config.json%s", number, why.data ? why.data : "",
	        config, machine, *d->machine ? " machine=machine.yaml" : "");
	for (int i = 0; i < d->word_count; i++)
		printf(" %s", d->words[i]);
	printf("\n");
	fflush(stdout);
	str_free(&why);
}

/* A draw's step within more and more of the device: not longer, but for a thousandth where what binds is
 * known badly (offload/choice.h). */
static int sweep_is_wrong(uint64_t number)
{
	double before_ms = INFINITY, least, ms;
	struct answer a, with;
	struct draw d;
	int wrong = 0;

	draw_make(&d, number);
	word_add(&d, "ram_budget=%.0f", 0x1p45);
	word_add(&d, "vram_budget=off");
	d.gpu_memory_bytes = 0x1p42;
	draw_answer(&a, &d);
	least = figure(a.json, "arena_bytes") / 2;
	for (double arena = least; isfinite(least) && arena < 16 * least && !wrong; arena *= 1.15) {
		word_add(&d, "vram_budget=%.0f", figure(a.json, "reserve_bytes") + arena);
		draw_answer(&with, &d);
		ms = figure(with.json, "step_ms");
		answer_free(&with);
		if (!isfinite(ms))
			continue;
		wrong = !(ms <= before_ms * 1.001);
		before_ms = ms;
	}
	if (wrong)
		draw_show(&d, number);
	answer_free(&a);
	return wrong;
}

static void test_draws(void **state)
{
	const char *asked = getenv("FERRY_DRAWS");
	uint64_t first = asked && strchr(asked, ':') ? strtoull(asked, NULL, 10) : 1,
	         count = !asked ? 10000
	                        : strtoull(strchr(asked, ':') ? strchr(asked, ':') + 1 : asked, NULL, 10),
	         made = 0, wrong = 0;
	double begin = clock_now_s();

	(void)state;
	for (; made < count && wrong < 5 && (asked || clock_now_s() - begin < SECONDS); made++) {
		struct str why = {0};
		struct draw d;

		draw_make(&d, first + made);
		if (draw_is_wrong(&d, &why)) {
			wrong++;
			draw_show(&d, first + made);
		}
		str_free(&why);
		if (!asked && made % 16 == 0)
			wrong += (uint64_t)sweep_is_wrong(first + made);
		if (asked && made % 500 == 499) {
			printf("%" PRIu64 " draws\n", made + 1);
			fflush(stdout);
		}
	}
	printf("%" PRIu64 " draws in %.1f s\n", made, clock_now_s() - begin);
	assert_int_equal(wrong, 0);
	assert_true(made >= 5 || made == count);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_draws)};
	int rc;

	for (int i = 0; i < 2; i++)
		capture_fds[i] = memfd_create("captured", MFD_CLOEXEC);
	setvbuf(stderr, NULL, _IOFBF, 1 << 16); /* a list of operations is many lines */
	ferry_run_begin("draws");
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return rc;
}

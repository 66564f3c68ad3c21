/* Random inputs for `ferry plan`: a model, a machine, keys of train, and budgets around the plan's needs.
 *
 * An input is a *draw*, in a user's words; its number determines it. draw_answer makes the program plan
 * it, in this process.
 */
#ifndef FERRY_TESTS_PLAN_DRAW_H
#define FERRY_TESTS_PLAN_DRAW_H

#include "tests/ferry_run.h"

#include "base/mem.h"
#include "cli/cli.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sys/mman.h>

enum { WORDS_MAX = 40, WORD_BYTES = 128, TEXT_BYTES = 1024 };

struct draw {
	char config[TEXT_BYTES];  /* config.json */
	int layers;               /* replaces %d in it */
	char machine[TEXT_BYTES]; /* YAML, or ferry would measure this machine */
	double gpu_memory_bytes;  /* replaces %.0f in it */
	char words[WORDS_MAX][WORD_BYTES];
	int word_count;
};

/* The program's answer. */
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

/* Runs cli_main with stdout and stderr in memory files. */
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
	f = fopen(path, "w"); /* not file_write_all, which waits for the disk */
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
	snprintf(machine, sizeof(machine), d->machine, d->gpu_memory_bytes);
	file_put("machine.yaml", machine);
	snprintf(paths[1], sizeof(paths[1]), "machine=%s/machine.yaml", work_dir);
	argv[argc++] = paths[1];
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

/* Adds key=value, in place of an earlier value of the same key. */
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

/* Adds each of "key=value key=value". */
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

/* A number of the answer; NAN if it is absent. */
static double figure(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? json_number_value(value) : NAN;
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

static double spread_roll(struct dice *r, double least, double most) /* log-uniform */
{
	return least * pow(most / least, (double)(dice_bits(r) >> 11) * 0x1p-53);
}

#define PICK(r, ...)                                                                                         \
	((const char *const[]){__VA_ARGS__}[roll(                                                            \
	        r, 0, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)) - 1)])

static void model_draw(struct draw *d, struct dice *r, int positions)
{
	const char *family = PICK(r, "llama", "llama", "mistral", "qwen2", "qwen3", "qwen3_5_text", "lfm2",
	        "muse_glimmer_text", "gemma4_text", "gpt2", "gpt_neox");
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
	        PICK(r, "true", "false"),
	        !strcmp(family, "qwen3") ? ", \"head_dim\": 16"
	        : !strcmp(family, "qwen3_5_text")
	                ? ", \"head_dim\": 16, \"full_attention_interval\": 3, \"linear_num_key_heads\": 2, "
	                  "\"linear_num_value_heads\": 6, \"linear_key_head_dim\": 24, "
	                  "\"linear_value_head_dim\": 40, \"linear_conv_kernel_dim\": 3"
	        : !strcmp(family, "lfm2")
	                ? ", \"full_attn_idxs\": [1, 3, 4], \"conv_L_cache\": 4, \"conv_bias\": true, "
	                  "\"block_auto_adjust_ff_dim\": false"
	        : !strcmp(family, "muse_glimmer_text") ? ", \"head_dim\": 24, \"sliding_window\": 9"
	        : !strcmp(family, "gemma4_text")
	                ? ", \"head_dim\": 16, \"global_head_dim\": 24, \"attention_k_eq_v\": true, "
	                  "\"hidden_size_per_layer_input\": 4, \"vocab_size_per_layer_input\": 150000"
	        : !strcmp(family, "llama") ? ", \"torch_dtype\": \"bfloat16\""
	                                   : "");
}

static const char plain_machine[] = "name: plain\ngpus: 0\nhost:\n  memory: 17179869184\n  reserve: 1MiB\n  "
                                    "memory_gbps: 40\n  gflops: 140\n";

static void machine_draw(struct draw *d, struct dice *r)
{
	int gpus = one_in(r, 4) ? 0 : one_in(r, 2) ? 1 : roll(r, 2, 8);

	d->gpu_memory_bytes = one_in(r, 6) ? spread_roll(r, 0x1p27, 0x1p34) : 0x1p42;
	if (one_in(r, 4)) {
		snprintf(d->machine, sizeof(d->machine), "%s", plain_machine);
		return;
	}
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
	if (one_in(r, 3))
		word_add(d, "freeze=%s",
		        PICK(r, ".*(embed|wte|wpe).*", ".*\\.0\\..*", ".*\\.[13579]\\..*|.*(norm|ln_).*",
		                "(?!.*(lm_head|embed|wte)).*",
		                ".*(q_proj|c_attn|query_key_value|norm|ln).*"));
	else if (one_in(r, 6))
		word_add(d, "trainable=%s",
		        PICK(r, ".*(norm|ln_|down).*", ".*", ".*(head|embed|wte|norm|ln).*"));
	if (!one_in(r, 3)) /* else auto */
		word_add(d, "prefetch_units=%d", roll(r, 1, 5));
}

/* Draws budgets from well below the plan's needs to well above. */
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

#endif

/* Rows of tables that cross alone: which ones a micro-batch uses, and the work of PICK and SPREAD. */
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "device/op_cost.h"
#include "offload/run_parts.h"
#include "optim/adamw.h"

#include <inttypes.h>
#include <string.h>

enum { PICK_ROWS = 8, CLEAR_ROWS = 64, SUM_BLOCKS = 16 /* of a task */, SUM_COLUMNS = 512 };

/* A set of ids, with the place of each among them. */
struct id_set {
	uint64_t *bits;
	int32_t *before; /* ids in the words before */
	int64_t words, count;
};

struct run_rows {
	struct id_set set;
	int32_t **id;   /* [micro] ids of its rows, ascending, without repetition */
	int64_t *count; /* [micro] */
	/* Of a SPREAD: its rows, tokens in the order of rows, and where those of each row begin. */
	int32_t *row_id, *token_end;
	int64_t *token;
	const char **from; /* [micro] the gradients of its tokens' rows */
	uint64_t **used;   /* [table] bits of chunks that have rows of the step */
	uint8_t **held;    /* [table][row] 1: the gradient's row is not 0 */
};

/* ---- ids ---- */

static int set_open(struct id_set *set, int64_t ids)
{
	set->words = ids / 64 + 1;
	set->bits = mem_alloc((size_t)set->words, sizeof(*set->bits));
	set->before = mem_alloc((size_t)set->words, sizeof(*set->before));
	return set->bits && set->before ? 0 : ERR_NOMEM;
}

static void set_clear(struct id_set *set)
{
	memset(set->bits, 0, (size_t)set->words * sizeof(*set->bits));
}

static void set_add(struct id_set *set, int32_t id)
{
	set->bits[id / 64] |= (uint64_t)1 << id % 64;
}

/* Lists the ids in ascending order. Places are known from then on. */
static void set_list(struct id_set *set, int32_t *ids)
{
	set->count = 0;
	for (int64_t w = 0; w < set->words; w++) {
		set->before[w] = (int32_t)set->count;
		for (uint64_t rest = set->bits[w]; rest; rest &= rest - 1)
			ids[set->count++] = (int32_t)(64 * w + __builtin_ctzll(rest));
	}
}

static int32_t set_place(const struct id_set *set, int32_t id)
{
	uint64_t below = ((uint64_t)1 << id % 64) - 1;

	return set->before[id / 64] + __builtin_popcountll(set->bits[id / 64] & below);
}

/* ---- open and close ---- */

static int64_t used_words(const struct unit *unit)
{
	return unit->rows * unit->row_count / ROWS_CHUNK / 64 + 1;
}

int run_rows_open(struct run *r)
{
	const struct unit_map *map = r->plan->map;
	size_t micros = (size_t)r->plan->policy.micro_batches, tokens = (size_t)r->plan->policy.max_tokens;
	struct run_rows *rows;
	int64_t most = 0;
	int rc;

	if (!map->table_count || !device_has_bytes(r->dock->device))
		return 0;
	rows = r->rows = mem_alloc(1, sizeof(*rows));
	if (!rows)
		return ERR_NOMEM;
	rows->id = mem_alloc(micros, sizeof(*rows->id));
	rows->count = mem_alloc(micros, sizeof(*rows->count));
	rows->row_id = mem_alloc(micros * tokens, sizeof(*rows->row_id));
	rows->token = mem_alloc(micros * tokens, sizeof(*rows->token));
	rows->token_end = mem_alloc(micros * tokens + 1, sizeof(*rows->token_end));
	rows->from = mem_alloc(micros, sizeof(*rows->from));
	rows->held = mem_alloc((size_t)map->table_count, sizeof(*rows->held));
	rows->used = mem_alloc((size_t)map->table_count, sizeof(*rows->used));
	rc = rows->id && rows->count && rows->row_id && rows->token && rows->token_end && rows->from &&
	                     rows->held && rows->used
	             ? 0
	             : ERR_NOMEM;
	for (size_t m = 0; m < micros && !rc; m++) {
		rows->id[m] = mem_alloc(tokens, sizeof(**rows->id));
		rc = rows->id[m] ? 0 : ERR_NOMEM;
	}
	for (int u = 0; u < map->unit_count && !rc; u++) {
		const struct unit *unit = &map->units[u];

		if (!unit->row_count)
			continue;
		most = max_i64(most, unit->rows);
		rows->held[unit->table] = mem_alloc((size_t)unit->rows, 1);
		rows->used[unit->table] = mem_alloc((size_t)used_words(unit), sizeof(**rows->used));
		rc = rows->held[unit->table] && rows->used[unit->table] ? 0 : ERR_NOMEM;
	}
	return rc ? rc : set_open(&rows->set, most);
}

void run_rows_close(struct run *r)
{
	struct run_rows *rows = r->rows;

	if (!rows)
		return;
	for (int m = 0; rows->id && m < r->plan->policy.micro_batches; m++)
		mem_free(rows->id[m]);
	for (int t = 0; rows->held && t < r->plan->map->table_count; t++)
		mem_free(rows->held[t]);
	for (int t = 0; rows->used && t < r->plan->map->table_count; t++)
		mem_free(rows->used[t]);
	mem_free(rows->id);
	mem_free(rows->count);
	mem_free(rows->row_id);
	mem_free(rows->token);
	mem_free(rows->token_end);
	mem_free(rows->from);
	mem_free(rows->held);
	mem_free(rows->used);
	mem_free(rows->set.bits);
	mem_free(rows->set.before);
	mem_free(rows);
}

/* ---- numbers of rows ---- */

int run_rows_number(struct run *r, int32_t *row, int m, const struct host_batch *batch)
{
	struct run_rows *rows = r->rows;

	set_clear(&rows->set);
	for (int64_t t = 0; t < batch->tokens; t++) {
		if (batch->id[t] < 0 || batch->id[t] / 64 >= rows->set.words)
			return err_set(ERR_RANGE, "token %d of a micro-batch is in no table", batch->id[t]);
		set_add(&rows->set, batch->id[t]);
	}
	set_list(&rows->set, rows->id[m]);
	rows->count[m] = rows->set.count;
	for (int64_t t = 0; t < batch->tokens; t++)
		row[t] = set_place(&rows->set, batch->id[t]);
	return 0;
}

int64_t run_rows_count(const struct run *r, int unit, int m)
{
	return r->rows ? r->rows->count[m]
	               : plan_rows_most(&r->plan->map->units[unit], r->step->micro[m].tokens);
}

/* ---- an UPDATE in two parts ---- */

void run_rows_used(const struct run *r, int unit)
{
	const struct unit *u = &r->plan->map->units[unit];
	uint64_t *used = r->rows->used[u->table];

	memset(used, 0, (size_t)used_words(u) * sizeof(*used));
	for (int m = 0; m < r->step->micro_count; m++) {
		for (int64_t i = 0; r->step->micro[m].tokens && i < r->rows->count[m]; i++) {
			int64_t first = r->rows->id[m][i] * u->row_count, last = first + u->row_count - 1;

			for (int64_t n = first / ROWS_CHUNK; n <= last / ROWS_CHUNK; n++)
				used[n / 64] |= (uint64_t)1 << n % 64;
		}
	}
}

int run_rows_use(const struct run *r, int unit, int64_t element)
{
	int64_t n = element / ROWS_CHUNK;

	return r->rows->used[r->plan->map->units[unit].table][n / 64] >> n % 64 & 1;
}

/* ---- PICK ---- */

struct pick {
	const uint16_t *hi;
	const int16_t *lo; /* NULL: the weights have none, or compute does not read it */
	char *to;
	const int32_t *id;
	int64_t count, columns;
	enum dtype dtype;
};

static void row_join(float *to, const uint16_t *hi, const int16_t *lo, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		to[i] = f32_from_bits(plane_join(hi[i], lo ? lo[i] : 0));
}

static void pick_task(void *context, int64_t task, int worker)
{
	const struct pick *p = context;
	int64_t end = min_i64((task + 1) * PICK_ROWS, p->count),
	        row_bytes = p->columns * dtype_bytes(p->dtype);

	(void)worker;
	for (int64_t i = task * PICK_ROWS; i < end; i++) {
		int64_t from = p->id[i] * p->columns;

		if (p->dtype == DTYPE_BF16)
			memcpy(p->to + i * row_bytes, p->hi + from, (size_t)row_bytes);
		else
			row_join((float *)(void *)(p->to + i * row_bytes), p->hi + from,
			        p->lo ? p->lo + from : NULL, p->columns);
	}
}

static int pick_run(void *context)
{
	const struct run_call *call = context;
	const struct run *r = call->run;
	const struct plan_op *op = call->op;
	int lo = run_arg(r, op, ARG_LO);
	struct pick p = {.hi = run_host_address(r, run_arg(r, op, ARG_HI)),
	        .lo = lo >= 0 ? run_host_address(r, lo) : NULL,
	        .to = run_host_address(r, run_arg(r, op, ARG_DST)),
	        .id = r->rows->id[op->micro],
	        .count = r->rows->count[op->micro],
	        .columns = r->plan->map->units[op->unit].row_count,
	        .dtype = r->plan->policy.compute_dtype};

	if (p.count && p.id[p.count - 1] >= r->plan->map->units[op->unit].rows)
		return err_set(ERR_RANGE, "token %d has no row in the table of %" PRId64 " rows",
		        p.id[p.count - 1], r->plan->map->units[op->unit].rows);
	pool_run(r->dock->pool, (p.count + PICK_ROWS - 1) / PICK_ROWS, pick_task, &p);
	return 0;
}

/* ---- SPREAD ---- */

struct spread {
	const struct run *run;
	const struct run_rows *rows;
	uint8_t *held;
	char *home;                          /* [table_rows, columns] */
	double *norm;                        /* of the tensor; NULL: FINISH sums */
	int64_t table_rows, columns, tokens; /* of a micro-batch */
	int is_first;
	enum dtype dtype, home_dtype;
};

static int64_t row_bytes_of(const struct spread *s)
{
	return s->columns * dtype_bytes(s->home_dtype);
}

/* Sets rows to 0 that have a gradient of the step before and none of this pass. */
static void clear_task(void *context, int64_t task, int worker)
{
	const struct spread *s = context;
	int64_t end = min_i64((task + 1) * CLEAR_ROWS, s->table_rows);

	(void)worker;
	for (int64_t row = task * CLEAR_ROWS; row < end; row++) {
		if (!s->held[row] || s->rows->set.bits[row / 64] >> row % 64 & 1)
			continue;
		memset(s->home + row * row_bytes_of(s), 0, (size_t)row_bytes_of(s));
		s->held[row] = 0;
	}
}

/* Adds the tokens of one row from column `first` on, in their order. */
static void tokens_sum(const struct spread *s, float *sum, int64_t place, int64_t first, int64_t count)
{
	const struct run_rows *rows = s->rows;

	memset(sum, 0, (size_t)count * sizeof(*sum));
	for (int32_t n = place ? rows->token_end[place - 1] : 0; n < rows->token_end[place]; n++) {
		int64_t token = rows->token[n], at = token % s->tokens * s->columns + first;
		const char *from = rows->from[token / s->tokens];

		for (int64_t i = 0; i < count; i++)
			sum[i] += s->dtype == DTYPE_BF16
			                  ? bf16_to_f32(((const uint16_t *)(const void *)from)[at + i])
			                  : ((const float *)(const void *)from)[at + i];
	}
}

static void row_task(void *context, int64_t place, int worker)
{
	const struct spread *s = context;
	int32_t row = s->rows->row_id[place];
	char *home = s->home + row * row_bytes_of(s);
	float sum[SUM_COLUMNS];

	(void)worker;
	s->held[row] = 1;
	for (int64_t first = 0; first < s->columns; first += SUM_COLUMNS) {
		int64_t count = min_i64(SUM_COLUMNS, s->columns - first);

		tokens_sum(s, sum, place, first, count);
		for (int64_t i = 0; i < count; i++)
			if (s->home_dtype == DTYPE_BF16)
				((uint16_t *)(void *)home)[first + i] = bf16_from_f32(sum[i]);
			else if (s->is_first)
				((float *)(void *)home)[first + i] = sum[i];
			else
				((float *)(void *)home)[first + i] += sum[i];
	}
}

/* Sums of squares of blocks; most have no row with a gradient. */
static void norm_task(void *context, int64_t task, int worker)
{
	const struct spread *s = context;
	int64_t all = s->table_rows * s->columns, blocks = (all + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK;
	int64_t end = min_i64((task + 1) * SUM_BLOCKS, blocks);

	(void)worker;
	for (int64_t n = task * SUM_BLOCKS; n < end; n++) {
		int64_t first = n * SUMSQ_BLOCK, count = min_i64(SUMSQ_BLOCK, all - first);
		int64_t last = (first + count - 1) / s->columns;
		int is_held = 0;

		for (int64_t row = first / s->columns; row <= last && !is_held; row++)
			is_held = s->held[row];
		s->norm[n] = 0;
		if (is_held)
			sumsq_blocks(&s->norm[n], s->home + first * dtype_bytes(s->home_dtype), count,
			        s->home_dtype, s->run->dock->isa);
	}
}

/* Calls fn for each token of the pass that has a gradient: the pad token has none. */
static void tokens_each(const struct run *r, const struct plan_op *op,
        void (*fn)(struct run_rows *rows, int32_t id, int64_t token))
{
	int64_t pad = r->plan->map->model->config.pad_id;

	for (int a = op->first_arg; a < op->first_arg + op->arg_count; a++) {
		const struct plan_arg *arg = &r->plan->args[a];
		int m = r->plan->buffers[arg->buffer].micro;

		if (arg->role != ARG_SRC || m >= r->step->micro_count)
			continue;
		r->rows->from[m] = run_host_address(r, arg->buffer);
		for (int64_t t = 0; t < r->step->micro[m].tokens; t++)
			if (r->step->micro[m].id[t] != pad)
				fn(r->rows, r->step->micro[m].id[t], m * r->plan->policy.max_tokens + t);
	}
}

static void row_mark(struct run_rows *rows, int32_t id, int64_t token)
{
	(void)token;
	set_add(&rows->set, id);
}

static void row_count(struct run_rows *rows, int32_t id, int64_t token)
{
	(void)token;
	rows->token_end[set_place(&rows->set, id) + 1]++;
}

static void token_put(struct run_rows *rows, int32_t id, int64_t token)
{
	rows->token[rows->token_end[set_place(&rows->set, id)]++] = token;
}

/* Sorts the tokens of the pass by row, those of a row in their order. */
static void tokens_sort(const struct run *r, const struct plan_op *op)
{
	struct run_rows *rows = r->rows;

	set_clear(&rows->set);
	tokens_each(r, op, row_mark);
	set_list(&rows->set, rows->row_id);
	memset(rows->token_end, 0, (size_t)(rows->set.count + 1) * sizeof(*rows->token_end));
	tokens_each(r, op, row_count);
	for (int64_t i = 0; i < rows->set.count; i++)
		rows->token_end[i + 1] += rows->token_end[i];
	tokens_each(r, op, token_put); /* moves each begin to its end */
}

static int spread_run(void *context)
{
	const struct run_call *call = context;
	const struct run *r = call->run;
	const struct plan_op *op = call->op;
	const struct unit *unit = &r->plan->map->units[op->unit];
	int home = run_arg(r, op, ARG_DST), norm = run_arg(r, op, ARG_NORM);
	struct spread s = {.run = r,
	        .rows = r->rows,
	        .held = r->rows->held[unit->table],
	        .home = run_host_address(r, home),
	        .table_rows = unit->rows,
	        .columns = unit->row_count,
	        .tokens = r->plan->policy.max_tokens,
	        .is_first = op->first,
	        .dtype = r->plan->policy.compute_dtype,
	        .home_dtype = r->plan->buffers[home].dtype};
	int64_t blocks = (s.table_rows * s.columns + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK;

	if (norm >= 0)
		s.norm = (double *)run_host_address(r, norm) +
		         r->norm_first[r->plan->map->pieces[unit->pieces[0]].tensor];
	tokens_sort(r, op);
	if (s.is_first)
		pool_run(r->dock->pool, (s.table_rows + CLEAR_ROWS - 1) / CLEAR_ROWS, clear_task, &s);
	pool_run(r->dock->pool, r->rows->set.count, row_task, &s);
	if (s.norm)
		pool_run(r->dock->pool, (blocks + SUM_BLOCKS - 1) / SUM_BLOCKS, norm_task, &s);
	return 0;
}

int run_queue_rows(struct run *r, struct stream *q, int op)
{
	const struct op_cost cost = {.host_bytes = run_work_bytes(r, &r->plan->ops[op])};

	r->calls[op] = (struct run_call){.run = r, .op = &r->plan->ops[op]};
	return stream_call(
	        q, r->plan->ops[op].kind == PLAN_OP_PICK ? pick_run : spread_run, &r->calls[op], &cost);
}
